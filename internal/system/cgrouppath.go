package system

import (
	"errors"
	"fmt"
)

// Path returns the path of a cgroup of the Default hierarchy by its id, as in /proc/PID/cgroup. A
// cgroup that is gone still has its name if it was seen once. An id that nothing has is asked for once
// a second at most, and so is the whole hierarchy where cgroups cannot be opened by id.
func (c *Cgroups) Path(id uint64) (string, bool) {
	if found, ok := c.cached(id); ok {
		return found, true
	}
	c.missing.Lock()
	defer c.missing.Unlock()
	if found, ok := c.cached(id); ok { // found while we waited
		return found, true
	}
	if c.now().Sub(c.misses[id]) < missTTL {
		return "", false
	}
	found, ok := c.find(id)
	if !ok {
		c.miss(id)
	}
	return found, ok
}

func (c *Cgroups) cached(id uint64) (string, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	found, ok := c.paths[id]
	return found, ok
}

// find looks up a cgroup that is not cached.
func (c *Cgroups) find(id uint64) (string, bool) {
	found, err := c.main.byHandle(id)
	if errors.Is(err, errNoHandles) {
		c.walk()
		return c.cached(id)
	}
	if err != nil {
		return "", false
	}
	c.remember(found, id)
	return found, true
}

// walk takes a new look at the whole hierarchy, unless the last is hardly over.
func (c *Cgroups) walk() {
	if c.now().Sub(c.lastWalk) >= missTTL {
		_ = c.main.walk(c.remember)
		c.lastWalk = c.now()
	}
}

func (c *Cgroups) remember(cgroup string, id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths[id] = cgroup
}

// miss remembers a failure, but not more of them than a busy machine has cgroups.
func (c *Cgroups) miss(id uint64) {
	const most = 1 << 14
	if len(c.misses) >= most {
		clear(c.misses)
	}
	c.misses[id] = c.now()
}

// Snapshot remembers all cgroups of the Default hierarchy that exist, so that those that are removed
// later have names. It takes some 5 us a cgroup.
func (c *Cgroups) Snapshot() error {
	if err := c.main.walk(c.remember); err != nil {
		return fmt.Errorf("read cgroups: %w", err)
	}
	return nil
}
