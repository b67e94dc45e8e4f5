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
	// ErrNoCgroups means that no cgroup hierarchy that BPF programs can use is mounted, or that all
	// are hidden below other mounts.
	ErrNoCgroups = errors.New("no cgroup hierarchy is mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
	// ErrNotCgroup means that a path is not the path of a cgroup.
	ErrNotCgroup = errors.New("no such cgroup")
	// ErrNamedHierarchy means that a cgroup is in a v1 hierarchy without controllers, such as
	// name=systemd.
	ErrNamedHierarchy = errors.New("BPF programs cannot filter by a named cgroup v1 hierarchy (without controllers)")
)

// Target is a cgroup that BPF programs filter by.
type Target struct {
	ID uint64 // as from bpf_get_current_cgroup_id: the kernfs ID, since 5.5 the inode number

	// Controller identifies the hierarchy: "" for cgroup v2, else a controller of the v1 hierarchy, as
	// in enum cgroup_subsys_id without _cgrp_id ("io", not "blkio").
	Controller string

	Path string // in its hierarchy, as in /proc/PID/cgroup
}

// Cgroups reads the mounted cgroup hierarchies, and caches the path of each cgroup of the Default
// hierarchy that it has read, for some minutes after the cgroup is removed too. That takes about 200
// bytes per cgroup. The cached path does not change if a v1 cgroup is renamed. Safe for concurrent use.
type Cgroups struct {
	hierarchies []*hierarchy
	v2          *hierarchy // nil if not mounted
	main        *hierarchy // the Default
	runtimes    *runtimes
	now         func() time.Time
	after       func(time.Duration, func()) // calls a function later

	mu       sync.RWMutex
	paths    map[uint64]string
	owners   map[uint64]cachedOwner
	gone     map[uint64]time.Time // when a cached cgroup was first seen not to exist
	sweeping bool                 // sweep is planned

	missing  sync.Mutex // held to look up a cgroup that is not in paths; guards the fields below
	misses   map[uint64]time.Time
	lastWalk time.Time
}

// OpenCgroups reads the mounted hierarchies from /proc/self/mountinfo.
//
// Returns ErrNoCgroups.
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
		v2:          preferWhole(hierarchies, func(h *hierarchy) bool { return h.v2 }),
		main:        chooseMain(hierarchies),
		runtimes:    newRuntimes(root),
		now:         time.Now,
		after:       func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		paths:       map[uint64]string{},
		owners:      map[uint64]cachedOwner{},
		gone:        map[uint64]time.Time{},
		misses:      map[uint64]time.Time{},
	}
	if c.main == nil {
		return nil, fmt.Errorf("open cgroups: %w", ErrNoCgroups)
	}
	return c, nil
}

// Report sets where files of container runtimes that exceed a limit are reported.
func (c *Cgroups) Report(r *limit.Reporter) { c.runtimes.limits = r }

// Default returns the hierarchy whose cgroups label events: "" for cgroup v2, else a controller as
// in Target. It is cgroup v2 if that has one of the controllers that limit containers (memory,
// pids, cpu, io), as on all current distributions.
//
// Otherwise, on a hybrid or v1 machine, it is the v1 hierarchy with the most cgroups, and among
// equal ones the first in the order memory, pids, cpu, io. That a hierarchy is mounted does not
// mean that it is used: in hybrid mode, cgroup v2 can have only a root cgroup, or only controllers
// that v1 does not use (hugetlb). systemd creates its services in it, but containers of a v1
// runtime stay in the service of their daemon. And a v1 controller can be mounted for a single
// application. So cgroup v2 is chosen only if it has cgroups and no v1 hierarchy has any.
func (c *Cgroups) Default() string { return c.main.controller() }

// CgroupMount is a mounted cgroup hierarchy.
type CgroupMount struct {
	Path        string   `json:"path" help:"mount point"`
	Version     uint64   `json:"version" help:"1 or 2"`
	Controllers []string `json:"controllers,omitempty" help:"of a version 1 hierarchy; none for a named one"`
}

// Mounts lists the hierarchies in the order in which they were mounted.
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

// Follow makes the hierarchy of a target the Default, because events that are filtered by this
// cgroup have IDs of its hierarchy. Call it before the first lookup by ID.
func (c *Cgroups) Follow(t Target) {
	c.follow(preferWhole(c.hierarchies, func(h *hierarchy) bool { return h.visible() && h.controller() == t.Controller }))
}

func (c *Cgroups) follow(h *hierarchy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h != nil && h != c.main {
		c.main = h
		clear(c.paths)
		clear(c.owners)
		clear(c.gone)
	}
}

func chooseMain(all []*hierarchy) *hierarchy {
	v2 := preferWhole(all, func(h *hierarchy) bool { return h.v2 })
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
		h := preferWhole(all, func(h *hierarchy) bool { return slices.Contains(h.controllers, name) })
		if h == nil {
			continue
		}
		if n := h.size(); found == nil || n > cgroups {
			found, cgroups = h, n
		}
	}
	return found, cgroups
}

// preferWhole returns a matching hierarchy that is mounted from its root, or else one of which a
// subtree is mounted, or nil.
func preferWhole(all []*hierarchy, matches func(*hierarchy) bool) *hierarchy {
	i := slices.IndexFunc(all, func(h *hierarchy) bool { return matches(h) && h.base == "/" })
	if i < 0 {
		i = slices.IndexFunc(all, matches)
	}
	if i < 0 {
		return nil
	}
	return all[i]
}

// Lookup finds a cgroup by name: a full path in a mounted hierarchy
// ("/sys/fs/cgroup/memory/docker/…"), or a path relative to cgroup v2 ("/system.slice/ssh.service",
// with or without the first slash) or, if it does not exist there, to the Default hierarchy, whose
// paths are the labels of events.
//
// Returns ErrNotCgroup or ErrNamedHierarchy.
func (c *Cgroups) Lookup(name string) (Target, error) {
	mountPoints := c.searchPath()
	var dirs []string
	if path.IsAbs(name) {
		dirs = append(dirs, c.runtimes.root)
	}
	if name != "" {
		dirs = append(dirs, mountPoints...)
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
	return Target{}, fmt.Errorf("find cgroup %q: %w in %s", name, ErrNotCgroup, strings.Join(mountPoints, " or "))
}

// lookup finds a cgroup by its path in the file system. It follows symbolic links, because systemd
// makes cpu and cpuacct links to cpu,cpuacct.
func (c *Cgroups) lookup(dir string) (Target, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Target{}, ErrNotCgroup
	}
	var innermost *hierarchy
	for _, h := range c.hierarchies {
		if _, ok := h.cgroup(dir); ok && (innermost == nil || len(h.dir) > len(innermost.dir)) {
			innermost = h
		}
	}
	if innermost == nil {
		return Target{}, ErrNotCgroup
	}
	return innermost.target(dir)
}

// searchPath returns the mount points that Lookup resolves relative paths in.
func (c *Cgroups) searchPath() []string {
	var dirs []string
	for _, h := range []*hierarchy{c.v2, c.main} {
		if h != nil && !slices.Contains(dirs, h.dir) {
			dirs = append(dirs, h.dir)
		}
	}
	return dirs
}
