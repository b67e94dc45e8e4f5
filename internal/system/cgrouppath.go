package system

import (
	"errors"
	"fmt"
)

// Path returns the path of a cgroup of the Default hierarchy by its ID, as in /proc/PID/cgroup,
// also for a removed cgroup that is cached. An unknown ID is looked up at most once a second. So is
// the whole hierarchy, which is walked if cgroups cannot be opened by ID.
func (c *Cgroups) Path(id uint64) (string, bool) {
	if found, ok := c.cached(id); ok {
		return found, true
	}
	c.missing.Lock()
	defer c.missing.Unlock()
	if found, ok := c.cached(id); ok { // another goroutine found it while this one waited
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
	c.cache(found, id)
	return found, true
}

// walk caches all cgroups of the hierarchy, at most once per missTTL.
func (c *Cgroups) walk() {
	if c.now().Sub(c.lastWalk) >= missTTL {
		_ = c.main.walk(c.cache)
		c.lastWalk = c.now()
	}
}

func (c *Cgroups) cache(cgroup string, id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths[id] = cgroup
	c.sweepLater()
}

// miss caches a failed lookup. The limit bounds the memory, and is above the number of cgroups of a
// busy machine.
func (c *Cgroups) miss(id uint64) {
	const limit = 1 << 14
	if len(c.misses) >= limit {
		clear(c.misses)
	}
	c.misses[id] = c.now()
}

// Snapshot caches the paths of all existing cgroups of the Default hierarchy, so that they are
// known after the cgroups are removed. It takes about 5 us per cgroup.
func (c *Cgroups) Snapshot() error {
	if err := c.main.walk(c.cache); err != nil {
		return fmt.Errorf("read cgroups: %w", err)
	}
	return nil
}
