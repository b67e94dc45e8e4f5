package system

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoController means that no mounted cgroup hierarchy has the controller.
var ErrNoController = errors.New("no mounted cgroup hierarchy has the controller")

// FollowController makes the hierarchy with a controller the Default, and returns whether it is
// cgroup v2. Call it before the first lookup by ID.
//
// Returns ErrNoController.
func (c *Cgroups) FollowController(name string) (v2 bool, err error) {
	h := c.v2
	if h == nil || !h.holds(name) {
		h = preferWhole(c.hierarchies, func(h *hierarchy) bool { return slices.Contains(h.controllers, name) })
	}
	if h == nil {
		return false, fmt.Errorf("find cgroup controller %s: %w", name, ErrNoController)
	}
	c.follow(h)
	return h.v2, nil
}

// Each calls visit for each existing cgroup of the Default hierarchy, parents first: with its path
// as in /proc/PID/cgroup, its directory and its ID.
func (c *Cgroups) Each(visit func(cgroup, dir string, id uint64)) error {
	h := c.main
	err := h.walk(func(cgroup string, id uint64) {
		c.cache(cgroup, id)
		visit(cgroup, filepath.Join(h.dir, strings.TrimPrefix(cgroup, h.base)), id)
	})
	if err != nil {
		return fmt.Errorf("read cgroups: %w", err)
	}
	return nil
}

// Covers reports whether a cgroup, given by its path, is the target or a descendant of it.
func (t *Target) Covers(cgroup string) bool {
	rest, ok := strings.CutPrefix(cgroup, strings.TrimSuffix(t.Path, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
