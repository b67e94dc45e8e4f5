package stack

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// TestCacheBudget looks up addresses of four programs with a budget for about one of them.
func TestCacheBudget(t *testing.T) {
	const programs = 4
	ps := newProcesses(t)
	var children []*child
	for i := range programs {
		c := start(t, compile(t, program, "-static", fmt.Sprintf("-Wl,--defsym=other%d=0", i)))
		children = append(children, c)
		expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	}
	all := ps.cache.bytes
	ps.cache.budget = all / programs * 3 / 2
	for range 3 {
		for _, c := range children {
			c.stop() // dropped symbols are read again even after the process has exited
			expect(t, ps.name(c.pid(), c.addrs[0]+1), "static_one", 1)
			expect(t, ps.name(c.pid(), c.addrs[1]), "global_two", 0)
			if ps.cache.bytes > ps.cache.budget {
				t.Errorf("%d bytes, budget %d", ps.cache.bytes, ps.cache.budget)
			}
		}
	}
	checkCacheBytes(t, &ps.cache)
}

// checkCacheBytes checks the accounted sizes of all modules.
func checkCacheBytes(t *testing.T, c *cache) {
	t.Helper()
	var sum int64
	for _, m := range c.modules {
		s := m.loaded.Load()
		if s == nil {
			continue
		}
		names := int64(0)
		for _, n := range s.names {
			names += int64(len(n)) + 64
		}
		if m.size != s.bytes()+names {
			t.Errorf("%v: accounted for %d bytes, want %d", m.key.file, m.size, s.bytes()+names)
		}
		sum += m.size
	}
	if sum != c.bytes {
		t.Errorf("accounted for %d bytes, want %d", c.bytes, sum)
	}
}

// TestCacheEviction checks which symbols are dropped, and that those in use are not.
func TestCacheEviction(t *testing.T) {
	c := &cache{budget: 2000, modules: make(map[moduleKey]*module)}
	m := make([]*module, 4)
	for i := range m {
		m[i] = c.module(moduleKey{file: fileID{inode: uint64(i)}}, nil, nil)
		m[i].used.Store(int64(10 - i)) // the first is the most recently used
		c.store(m[i], &symbols{}, place{})
	}
	for i, want := range []bool{true, true, false, true} { // 512 bytes each; the third was the least recently used
		if got := m[i].loaded.Load() != nil; got != want {
			t.Errorf("module %d: loaded %t, want %t", i, got, want)
		}
	}
	c.grow(m[0], m[0].loaded.Load(), 5000)
	if m[0].loaded.Load() == nil || m[1].loaded.Load() != nil || c.bytes != 5512 {
		t.Errorf("a module exceeds the budget: %d bytes accounted for", c.bytes)
	}
	c.grow(m[1], &symbols{}, 100)
	if c.bytes != 5512 {
		t.Errorf("grow counts symbols that were dropped: %d bytes", c.bytes)
	}
	for i := range m {
		c.release(m[i])
	}
	if len(c.modules) != 1 {
		t.Errorf("%d modules, want only the loaded one", len(c.modules))
	}
}

// TestCacheHoldsSome reads a module by path, because the limit of held files was reached.
func TestCacheHoldsSome(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	ps.cache.held = maxHeld
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	if ps.cache.held != maxHeld {
		t.Errorf("%d files held, want at most %d", ps.cache.held, maxHeld)
	}
	c.stop()
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	ps.cache.held = 0
}

func TestCacheSharesModules(t *testing.T) {
	ps := newProcesses(t)
	file := compile(t, program)
	a, b := start(t, file), start(t, file)
	expect(t, ps.name(a.pid(), a.addrs[0]), "static_one", 0)
	bytes := ps.cache.bytes
	expect(t, ps.name(b.pid(), b.addrs[0]), "static_one", 0)
	if ps.cache.bytes != bytes {
		t.Errorf("%d bytes for one process, %d for two", bytes, ps.cache.bytes)
	}
	ps.Forget(a.pid())
	ps.Forget(b.pid())
	if ps.cache.bytes != bytes {
		t.Errorf("%d bytes after Forget, want %d", ps.cache.bytes, bytes)
	}
	c := start(t, file)
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	if ps.cache.bytes != bytes {
		t.Errorf("%d bytes after another process, want %d", ps.cache.bytes, bytes)
	}
}

// TestManyProcesses calls Remember for more processes than are kept.
func TestManyProcesses(t *testing.T) {
	ps := newProcesses(t)
	if err := ps.Remember(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	for i := range maxProcesses {
		ps.Remember(-1 - i) // no such process
	}
	if _, ok := ps.pids[os.Getpid()]; ok || len(ps.pids) != maxProcesses {
		t.Errorf("%d processes, want %d; the oldest is kept: %t", len(ps.pids), maxProcesses, ok)
	}
	if ps.cache.held != 0 {
		t.Errorf("%d files held, want 0", ps.cache.held)
	}
}

// TestConcurrent symbolizes, remembers and forgets a process concurrently, for the race detector.
func TestConcurrent(t *testing.T) {
	ps := newProcesses(t)
	ps.cache.budget = 1 // drop symbols as soon as possible
	c := start(t, compile(t, program))
	k := loadFixture(t)
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for range 50 {
				frames := ps.Append(nil, c.pid(), []uint64{c.addrs[0], c.addrs[1] + 1})
				if frames[0].Name != "static_one" || frames[1].Name != "global_two" {
					t.Errorf("got %#v", frames)
				}
				k.Append(nil, []uint64{0xffffffff81000110, 0xffffffff81000341})
				if i == 0 {
					ps.Forget(c.pid())
				} else if err := ps.Remember(c.pid()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	checkCacheBytes(t, &ps.cache)
}
