package stack

import (
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"github.com/corescope/corescope/internal/limit"
)

// maxHeld bounds the number of files that are kept open before their symbols are read, by default.
// Other files are opened again by path, if it still refers to the same file.
const maxHeld = 1024

// cache has the modules of all processes by identity. If their symbols need more memory than the
// budget, the least recently used symbols are dropped.
type cache struct {
	budget  int64
	limits  *limit.Reporter
	servers *Debuginfod  // nil if no servers are configured
	tick    atomic.Int64 // number of look-ups

	mu      sync.Mutex
	modules map[moduleKey]*module
	bytes   int64
	held    int
	maxHeld int
}

// module returns the module with a key and adds a reference to it. It takes ownership of h, which
// is nil for a vDSO. memory is nil for a file.
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
	if m.held != nil || m.loaded.Load() != nil || c.held >= c.maxHeld {
		h.Close()
		return
	}
	m.held = h
	c.held++
}

func (c *cache) closeHeld(m *module) {
	if m.held != nil {
		m.held.Close()
		m.held = nil
		c.held--
	}
}

// retain adds a reference to a module that is referenced already.
func (c *cache) retain(m *module) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.refs++
}

// release removes a reference. Symbols stay in the cache for other processes, except those of a
// perf map or a jitdump, which belong to one process.
func (c *cache) release(m *module) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.refs--; m.refs > 0 {
		return
	}
	c.closeHeld(m)
	if m.loaded.Load() == nil || m.key.kind.isPerProcess() {
		c.drop(m)
	}
}

// open opens the file of m: the handle that is held, the open file of the place, or else its path
// if that still refers to the same file.
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

// store stores the symbols of m. It closes the handle, unless the file is deleted and could not be
// opened again.
func (c *cache) store(m *module, s *symbols, at place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !at.isDeleted() {
		c.closeHeld(m)
	}
	m.size = s.bytes()
	c.bytes += m.size
	m.loaded.Store(s)
	c.evict(m)
}

// grow accounts for n more bytes of s, if s still is the symbols of m.
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

// evict drops the least recently used symbols until the budget is met. It does not drop those of
// current, which are in use.
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

// drop drops the symbols of m, and m itself if it has no references.
func (c *cache) drop(m *module) {
	if m.loaded.Swap(nil) != nil {
		c.bytes -= m.size
		m.size = 0
	}
	if m.refs == 0 {
		delete(c.modules, m.key)
	}
}
