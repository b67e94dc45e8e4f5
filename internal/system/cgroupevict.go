package system

import "time"

// A removed cgroup stays cached for at least goneTTL: the last events of its tasks are still to be read.
// What is cached is compared with the existing cgroups every sweepEvery, while some that are cached do not
// exist.
const (
	goneTTL    = 5 * time.Minute
	sweepEvery = time.Minute
)

// sweepLater calls sweep later, if that is not planned yet. mu is held.
func (c *Cgroups) sweepLater() {
	if c.sweeping {
		return
	}
	c.sweeping = true
	c.after(sweepEvery, func() {
		again := c.sweep()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sweeping = false; again {
			c.sweepLater()
		}
	})
}

// sweep removes cgroups from the cache that do not exist any more since goneTTL. It reports whether
// there are others that do not exist. It takes about 5 us per existing cgroup.
func (c *Cgroups) sweep() (others bool) {
	c.mu.RLock()
	main := c.main
	c.mu.RUnlock()
	exists := map[uint64]bool{}
	if err := main.walk(func(_ string, id uint64) { exists[id] = true }); err != nil {
		return true
	}
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.paths)
	for id := range c.paths {
		since, isGone := c.gone[id]
		switch {
		case exists[id]:
			delete(c.gone, id)
		case !isGone:
			c.gone[id] = now
		case now.Sub(since) >= goneTTL:
			delete(c.paths, id)
			delete(c.owners, id)
			delete(c.gone, id)
		}
	}
	if len(c.paths) < before {
		c.shrink()
	}
	return len(c.gone) > 0
}

// shrink replaces the maps, because a map keeps its memory when entries are deleted, and removes the
// names of containers that no cached cgroup belongs to.
func (c *Cgroups) shrink() {
	c.paths, c.owners, c.gone = moved(c.paths), moved(c.owners), moved(c.gone)
	used := map[string]bool{}
	for _, o := range c.owners {
		used[o.ContainerID] = true
	}
	c.runtimes.forget(func(id string) bool { return !used[id] })
}

func moved[K comparable, V any](m map[K]V) map[K]V {
	smaller := make(map[K]V, len(m))
	for k, v := range m {
		smaller[k] = v
	}
	return smaller
}

// forget removes the names of containers.
func (r *runtimes) forget(unused func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.cached {
		if unused(id) {
			delete(r.cached, id)
		}
	}
	r.cached = moved(r.cached)
}
