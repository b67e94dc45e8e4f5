package stack

import (
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/corescope/corescope/internal/limit"
)

// maxHeld is how many files are held that have not been read yet. Files beyond
// it are found again by their path, if that still leads to them.
const maxHeld = 1024

// cache knows the modules of all processes by identity and keeps the memory of
// their symbols within a budget, dropping those first that have not been asked
// for the longest time.
type cache struct {
	budget  int64
	limits  *limit.Reporter
	servers *Debuginfod  // nil if none is asked
	tick    atomic.Int64 // counts look-ups

	mu      sync.Mutex
	modules map[moduleKey]*module
	bytes   int64
	held    int
}

// module returns the module of that key with one more reference. It takes h
// over, which is nil for a vDSO, as memory is for a file.
func (c *cache) module(key moduleKey, h *handle, memory []byte) *module {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.modules[key]
	if m == nil {
		m = &module{key: key, cache: c, memory: memory}
		c.modules[key] = m
	}
	m.refs++
	if h != nil {
		c.hold(m, h)
	}
	return m
}

func (c *cache) hold(m *module, h *handle) {
	if m.held != nil || m.loaded.Load() != nil || c.held >= maxHeld {
		h.Close()
		return
	}
	m.held = h
	c.held++
}

func (c *cache) letGo(m *module) {
	if m.held != nil {
		m.held.Close()
		m.held = nil
		c.held--
	}
}

// retain adds a reference to a module that has one.
func (c *cache) retain(m *module) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.refs++
}

// release gives a reference back. Symbols that were read stay for the next
// process, except those of a perf map or a jitdump, which belong to one.
func (c *cache) release(m *module) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.refs--; m.refs > 0 {
		return
	}
	c.letGo(m)
	if m.loaded.Load() == nil || m.key.kind.ofProcess() {
		c.drop(m)
	}
}

// open opens the file of m: the one that was held, or what its path leads to
// if that is still the same.
func (c *cache) open(m *module, at place) (*os.File, error) {
	c.mu.Lock()
	h := m.held
	c.mu.Unlock()
	if h != nil {
		return h.open()
	}
	if at.file != nil {
		if f, err := at.file.Open(); err == nil {
			return f, nil
		}
	}
	for _, r := range at.roots {
		f, id, err := r.open(at.path)
		if err != nil {
			continue
		}
		if id == m.key.file {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("open %s: %w", at.path, os.ErrNotExist)
}

// keep stores what was read of m, and lets its file go if a path leads to it.
func (c *cache) keep(m *module, s *symbols, at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !at.isDeleted() {
		c.letGo(m)
	}
	m.size = s.bytes()
	c.bytes += m.size
	m.loaded.Store(s)
	c.evict(m)
}

// grow accounts for n more bytes of s, if m still has it.
func (c *cache) grow(m *module, s *symbols, n int64) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.loaded.Load() == s {
		m.size += n
		c.bytes += n
		c.evict(m)
	}
}

// evict drops symbols until the budget is met, but never those of current:
// they are being looked at.
func (c *cache) evict(current *module) {
	for c.bytes > c.budget {
		var oldest *module
		age := int64(math.MaxInt64)
		for _, m := range c.modules {
			if used := m.used.Load(); m != current && m.loaded.Load() != nil && used < age {
				oldest, age = m, used
			}
		}
		if oldest == nil {
			return
		}
		c.drop(oldest)
	}
}

// drop forgets the symbols of m, and m itself if no mapping refers to it.
func (c *cache) drop(m *module) {
	if m.loaded.Swap(nil) != nil {
		c.bytes -= m.size
		m.size = 0
	}
	if m.refs == 0 {
		delete(c.modules, m.key)
	}
}
