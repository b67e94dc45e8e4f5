package system

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/corescope/corescope/internal/limit"
)

var (
	// ErrNoCgroups means that no cgroup hierarchy that BPF programs can see is mounted, or
	// that other mounts hide all of them.
	ErrNoCgroups = errors.New("no cgroup hierarchy is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
	// ErrNotCgroup means that a path leads to no cgroup.
	ErrNotCgroup = errors.New("no such cgroup")
	// ErrNamedHierarchy means a cgroup of a v1 hierarchy without controllers, such as systemd's own.
	ErrNamedHierarchy = errors.New("a named cgroup v1 hierarchy has no controller, so no BPF program can see it")
)

// Target is a cgroup for a BPF program to compare with.
type Target struct {
	ID uint64 // as bpf_get_current_cgroup_id gives it: the kernfs id, since 5.5 the inode number

	// Controller says in which hierarchy: "" is cgroup v2, else it is a v1 hierarchy, of which this
	// is a controller by its name in enum cgroup_subsys_id, so without _cgrp_id ("io", not "blkio").
	Controller string

	Path string // in its hierarchy, as in /proc/PID/cgroup
}

// Cgroups knows the mounted cgroup hierarchies, and remembers the path of every cgroup of the Default
// one that it ever saw, also after it is gone. That takes some 200 bytes for each. A v1 cgroup that
// is renamed keeps its first path. Safe for concurrent use.
type Cgroups struct {
	hierarchies []*hierarchy
	v2          *hierarchy // nil if not mounted
	main        *hierarchy // the Default
	runtimes    *runtimes
	now         func() time.Time

	mu     sync.RWMutex
	paths  map[uint64]string
	owners map[uint64]knownOwner

	missing  sync.Mutex // held to look up what is not in paths
	misses   map[uint64]time.Time
	lastWalk time.Time
}

// OpenCgroups reads what is mounted. The error is ErrNoCgroups, or that of reading
// /proc/self/mountinfo.
func OpenCgroups(root string) (*Cgroups, error) {
	root, err := resolveRoot(root)
	if err != nil {
		return nil, fmt.Errorf("open cgroups: %w", err)
	}
	hierarchies, err := readHierarchies(root)
	if err != nil {
		return nil, fmt.Errorf("open cgroups: %w", err)
	}
	c := &Cgroups{
		hierarchies: hierarchies,
		v2:          whole(hierarchies, func(h *hierarchy) bool { return h.v2 }),
		main:        chooseMain(hierarchies),
		runtimes:    newRuntimes(root),
		now:         time.Now,
		paths:       map[uint64]string{},
		owners:      map[uint64]knownOwner{},
		misses:      map[uint64]time.Time{},
	}
	if c.main == nil {
		return nil, fmt.Errorf("open cgroups: %w", ErrNoCgroups)
	}
	return c, nil
}

// Report sets where files of container runtimes that exceed a limit are reported.
func (c *Cgroups) Report(r *limit.Reporter) { c.runtimes.limits = r }

// Default returns the hierarchy that events are labelled from: "" for cgroup v2, else a controller as
// in Target. Where cgroup v2 has the controllers that limit containers (memory, pids, cpu, io) it is
// that, which is so on all current distributions.
//
// On a hybrid or v1 machine it is the v1 hierarchy with the most cgroups, and of equals the first of
// memory, pids, cpu, io: being mounted says nothing there. A hybrid cgroup v2 may be without any
// cgroup but its root, or hold what its v1 siblings do not use (hugetlb); systemd makes its services
// in it, but containers of a v1 runtime stay in the service of their daemon; and a v1 controller may
// be mounted for one user only. Only if no v1 hierarchy has a cgroup and v2 has is it v2.
func (c *Cgroups) Default() string { return c.main.controller() }

// CgroupMount is a hierarchy that is mounted.
type CgroupMount struct {
	Path        string   `json:"path" help:"where it is mounted"`
	Version     uint64   `json:"version" help:"1 or 2"`
	Controllers []string `json:"controllers,omitempty" help:"of version 1; none for a named hierarchy"`
}

// Mounts lists the hierarchies in the order of mounting.
func (c *Cgroups) Mounts() []CgroupMount {
	var all []CgroupMount
	for _, h := range c.hierarchies {
		m := CgroupMount{Path: strings.TrimPrefix(h.dir, strings.TrimSuffix(c.runtimes.root, "/")), Version: 1, Controllers: h.controllers}
		if h.v2 {
			m.Version = 2
		}
		all = append(all, m)
	}
	return all
}

// Follow makes the hierarchy of a target the Default: the one that ids are of when events are filtered
// by a cgroup of it. It comes before the first look-up of an id.
func (c *Cgroups) Follow(t Target) {
	of := whole(c.hierarchies, func(h *hierarchy) bool { return h.visible() && h.controller() == t.Controller })
	c.mu.Lock()
	defer c.mu.Unlock()
	if of != nil && of != c.main {
		c.main = of
		clear(c.paths)
		clear(c.owners)
	}
}

func chooseMain(all []*hierarchy) *hierarchy {
	v2 := whole(all, func(h *hierarchy) bool { return h.v2 })
	if v2 != nil && v2.holds("memory", "pids", "cpu", "io") {
		return v2
	}
	v1, cgroups := largest(all)
	if v2 != nil && (v1 == nil || (cgroups == 0 && v2.size() > 0)) {
		return v2
	}
	return v1
}

// largest returns the v1 hierarchy with the most cgroups below its root, nil if there is none.
func largest(all []*hierarchy) (found *hierarchy, cgroups int) {
	for _, name := range preferred {
		h := whole(all, func(h *hierarchy) bool { return slices.Contains(h.controllers, name) })
		if h == nil {
			continue
		}
		if n := h.size(); found == nil || n > cgroups {
			found, cgroups = h, n
		}
	}
	return found, cgroups
}

// whole returns, of the hierarchies that fit, one of which all is mounted, else any.
func whole(all []*hierarchy, fits func(*hierarchy) bool) *hierarchy {
	i := slices.IndexFunc(all, func(h *hierarchy) bool { return fits(h) && h.base == "/" })
	if i < 0 {
		i = slices.IndexFunc(all, fits)
	}
	if i < 0 {
		return nil
	}
	return all[i]
}

// Lookup finds the cgroup that a user means: by a path in a mounted hierarchy
// ("/sys/fs/cgroup/memory/docker/…"), or relative to cgroup v2 ("/system.slice/ssh.service", with or
// without the first slash) or, if it is not there, to the Default hierarchy, whose paths the labels of
// events show. The error is ErrNotCgroup or ErrNamedHierarchy.
func (c *Cgroups) Lookup(name string) (Target, error) {
	places := c.places()
	var dirs []string
	if path.IsAbs(name) {
		dirs = append(dirs, c.runtimes.root)
	}
	if name != "" {
		dirs = append(dirs, places...)
	}
	for _, dir := range dirs {
		target, err := c.lookup(filepath.Join(dir, path.Join("/", name)))
		if err == nil {
			return target, nil
		}
		if !errors.Is(err, ErrNotCgroup) {
			return Target{}, fmt.Errorf("find cgroup %q: %w", name, err)
		}
	}
	return Target{}, fmt.Errorf("find cgroup %q: %w in %s", name, ErrNotCgroup, strings.Join(places, " or "))
}

// lookup finds a cgroup by its path in the file system. It may be given by a symbolic link: systemd
// makes cpu and cpuacct links to cpu,cpuacct.
func (c *Cgroups) lookup(dir string) (Target, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Target{}, ErrNotCgroup
	}
	var in *hierarchy
	for _, h := range c.hierarchies {
		if _, ok := h.cgroup(dir); ok && (in == nil || len(h.dir) > len(in.dir)) {
			in = h
		}
	}
	if in == nil {
		return Target{}, ErrNotCgroup
	}
	return in.target(dir)
}

// places returns the mount points where Lookup looks for relative paths.
func (c *Cgroups) places() []string {
	var dirs []string
	for _, h := range []*hierarchy{c.v2, c.main} {
		if h != nil && !slices.Contains(dirs, h.dir) {
			dirs = append(dirs, h.dir)
		}
	}
	return dirs
}
