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

// hierarchy is a mounted cgroup hierarchy, or a subtree of one.
type hierarchy struct {
	dir         string   // mount point, including the root of the tree
	base        string   // the cgroup that is mounted there, usually "/"
	v2          bool     // cgroup2, of which there is only one
	controllers []string // v1, named as in enum cgroup_subsys_id; none for a name=… hierarchy
	handle      int32    // type of its file handles, 0 if it has none
}

// preferred lists all controllers in the order of preference for Default. memory and pids come
// first because systemd and the container runtimes create a cgroup in both for each service and
// container by default.
var preferred = []string{
	"memory", "pids", "cpu", "io", "cpuacct", "devices", "freezer", "cpuset",
	"hugetlb", "perf_event", "net_cls", "net_prio", "rdma", "misc", "dmem", "debug",
}

// readHierarchies returns the mounted cgroup hierarchies that other mounts do not hide, in the
// order in which they were mounted.
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
			continue // hidden by another mount
		}
		h.handle = handleType(h.dir)
		// A later mount at the same mount point hides the earlier one.
		found = slices.DeleteFunc(found, func(o *hierarchy) bool { return o.dir == h.dir })
		found = append(found, h)
	}
	return found, nil
}

// newHierarchy returns the cgroup hierarchy of a mount, and whether the mount is one.
func newHierarchy(m Mount) (*hierarchy, bool) {
	h := &hierarchy{dir: m.Dir, base: m.Base, v2: m.Type == "cgroup2"}
	if m.Type == "cgroup" {
		h.controllers = controllersOf(m.Options)
	}
	return h, h.v2 || m.Type == "cgroup"
}

// controllersOf returns the controllers in the options of a v1 mount.
func controllersOf(options string) []string {
	var found []string
	for option := range strings.SplitSeq(options, ",") {
		if option == "blkio" {
			option = "io" // the kernel renamed the controller internally, but not the option
		}
		if slices.Contains(preferred, option) {
			found = append(found, option)
		}
	}
	return found
}

// controller returns a controller that identifies the hierarchy to BPF programs, "" for cgroup v2.
// If several controllers share the hierarchy, any of them does.
func (h *hierarchy) controller() string {
	if h.v2 || len(h.controllers) == 0 {
		return ""
	}
	return h.controllers[0]
}

// visible reports whether a BPF program can find a task's cgroup in this hierarchy: with
// bpf_get_current_cgroup_id, or in the task's subsystem state.
func (h *hierarchy) visible() bool { return h.v2 || len(h.controllers) > 0 }

// holds reports whether a cgroup v2 hierarchy has one of the controllers.
func (h *hierarchy) holds(names ...string) bool {
	data, _ := readFile(filepath.Join(h.dir, "cgroup.controllers"), 4096)
	return slices.ContainsFunc(strings.Fields(string(data)), func(c string) bool {
		return slices.Contains(names, c)
	})
}

// cgroup returns the path of a directory as in /proc/PID/cgroup, and whether it is below this
// mount.
func (h *hierarchy) cgroup(dir string) (string, bool) {
	rest, ok := strings.CutPrefix(dir, h.dir)
	if !ok || (rest != "" && rest[0] != '/') {
		return "", false
	}
	return path.Join(h.base, rest), true
}

// target returns the Target for a directory of this hierarchy.
//
// Returns ErrNotCgroup or ErrNamedHierarchy.
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

// isCgroup reports whether dir is a cgroup. The tmpfs that the hierarchies are mounted in is not,
// nor is a file in a cgroup.
func isCgroup(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
	return err == nil && info.Mode().IsRegular()
}

// cgroupInfo has the attributes of a cgroup's directory.
type cgroupInfo struct {
	id     uint64
	dev    uint64
	parent bool // it may have children
}

func (h *hierarchy) stat(dir string) (cgroupInfo, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return cgroupInfo{}, fmt.Errorf("stat cgroup: %w", err)
	}
	// With two links (the entry in the parent, and ".") a directory has no subdirectories. Other
	// counts, as on some file systems in tests, mean nothing.
	info := cgroupInfo{id: stat.Ino, dev: stat.Dev, parent: stat.Nlink != 2}
	if h.handle == fileidInoGen32 {
		id, err := handleID(dir)
		return cgroupInfo{id, info.dev, info.parent}, err
	}
	return info, nil
}

// walk visits every cgroup of the hierarchy, parents first. It skips cgroups that are removed
// during the walk.
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

// walkBelow stays on one device, because a v1 hierarchy with other IDs can be mounted below cgroup
// v2, as is done for net_cls.
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
