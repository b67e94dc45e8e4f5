package system

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// hierarchy is a mounted cgroup hierarchy, or a part of one.
type hierarchy struct {
	dir         string   // mount point, with the root of the tree
	base        string   // the cgroup that is mounted there, "/" as a rule
	v2          bool     // cgroup2, of which there is one
	controllers []string // v1, by the names of enum cgroup_subsys_id; none for a name=… hierarchy
	handle      int32    // type of its file handles, 0 if there are none
}

// preferred lists all controllers by preference as the hierarchy to label events from. Memory and pids come first because
// systemd and the container runtimes give every service and container one of each by default.
var preferred = []string{
	"memory", "pids", "cpu", "io", "cpuacct", "devices", "freezer", "cpuset",
	"hugetlb", "perf_event", "net_cls", "net_prio", "rdma", "misc", "dmem", "debug",
}

// readHierarchies returns the mounted cgroup hierarchies that can be reached, in the order of
// mounting.
func readHierarchies(root string) ([]*hierarchy, error) {
	mounts, err := ReadMounts(root)
	if err != nil {
		return nil, err
	}
	var found []*hierarchy
	for _, m := range mounts {
		h, ok := newHierarchy(m)
		if !ok {
			continue
		}
		if h.dir = filepath.Join(root, h.dir); !isCgroup(h.dir) {
			continue // another mount hides it
		}
		h.handle = handleType(h.dir)
		// What is mounted later on the same place hides what was there.
		found = slices.DeleteFunc(found, func(o *hierarchy) bool { return o.dir == h.dir })
		found = append(found, h)
	}
	return found, nil
}

// newHierarchy tells whether a mount is a cgroup hierarchy, and which.
func newHierarchy(m Mount) (*hierarchy, bool) {
	h := &hierarchy{dir: m.Dir, base: m.Base, v2: m.Type == "cgroup2"}
	if m.Type == "cgroup" {
		h.controllers = controllersOf(m.Options)
	}
	return h, h.v2 || m.Type == "cgroup"
}

// controllersOf picks the controllers out of the options of a v1 mount.
func controllersOf(options string) []string {
	var found []string
	for option := range strings.SplitSeq(options, ",") {
		if option == "blkio" {
			option = "io" // renamed in the kernel, but not for its users
		}
		if slices.Contains(preferred, option) {
			found = append(found, option)
		}
	}
	return found
}

// controller returns the one to tell BPF programs, any of several that share the hierarchy.
func (h *hierarchy) controller() string {
	if h.v2 || len(h.controllers) == 0 {
		return ""
	}
	return h.controllers[0]
}

// visible tells whether a BPF program can find a task's cgroup in this hierarchy: by
// bpf_get_current_cgroup_id, or by the task's subsystem state.
func (h *hierarchy) visible() bool { return h.v2 || len(h.controllers) > 0 }

// holds tells whether a cgroup v2 hierarchy has one of the controllers that containers are limited by.
func (h *hierarchy) holds(names ...string) bool {
	data, _ := readFile(filepath.Join(h.dir, "cgroup.controllers"), 4096)
	return slices.ContainsFunc(strings.Fields(string(data)), func(c string) bool {
		return slices.Contains(names, c)
	})
}

// cgroup returns the path of a directory as in /proc/PID/cgroup, and whether it is below this mount.
func (h *hierarchy) cgroup(dir string) (string, bool) {
	rest, ok := strings.CutPrefix(dir, h.dir)
	if !ok || (rest != "" && rest[0] != '/') {
		return "", false
	}
	return path.Join(h.base, rest), true
}

// target returns what is known of a directory of this hierarchy.
func (h *hierarchy) target(dir string) (Target, error) {
	name, ok := h.cgroup(dir)
	if !ok || !isCgroup(dir) {
		return Target{}, ErrNotCgroup
	}
	if !h.visible() {
		return Target{}, ErrNamedHierarchy
	}
	info, err := h.stat(dir)
	return Target{ID: info.id, Controller: h.controller(), Path: name}, err
}

// isCgroup tells a cgroup from the tmpfs around the hierarchies, and from a file in a cgroup.
func isCgroup(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
	return err == nil && info.Mode().IsRegular()
}

// cgroupInfo is what the file system says of a cgroup.
type cgroupInfo struct {
	id     uint64
	dev    uint64
	parent bool // whether it can have children
}

func (h *hierarchy) stat(dir string) (cgroupInfo, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return cgroupInfo{}, fmt.Errorf("stat cgroup: %w", err)
	}
	// Two links are the directory and its own "."; not all file systems of test trees count so.
	info := cgroupInfo{id: stat.Ino, dev: stat.Dev, parent: stat.Nlink != 2}
	if h.handle == fileidInoGen32 {
		id, err := handleID(dir)
		return cgroupInfo{id, info.dev, info.parent}, err
	}
	return info, nil
}

// walk visits every cgroup of the hierarchy, parents first. Cgroups that vanish meanwhile are skipped.
func (h *hierarchy) walk(visit func(cgroup string, id uint64)) error {
	top, err := h.stat(h.dir)
	if err != nil {
		return err
	}
	visit(h.base, top.id)
	if top.parent {
		h.walkBelow(h.dir, h.base, top.dev, visit)
	}
	return nil
}

// walkBelow stays on one device: a v1 hierarchy, with ids of its own, may be mounted in the midst of
// cgroup v2, as some set up net_cls.
func (h *hierarchy) walkBelow(dir, cgroup string, dev uint64, visit func(string, uint64)) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	entries, _ := f.ReadDir(-1)
	f.Close()
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		child, name := filepath.Join(dir, e.Name()), path.Join(cgroup, e.Name())
		info, err := h.stat(child)
		if err != nil || info.dev != dev {
			continue
		}
		visit(name, info.id)
		if info.parent {
			h.walkBelow(child, name, dev, visit)
		}
	}
}

// size counts the cgroups below the root of the hierarchy.
func (h *hierarchy) size() int {
	n := -1
	_ = h.walk(func(string, uint64) { n++ })
	return n
}
