package stack

import (
	"fmt"
	"os"
	"sync"
	"testing"
)

// TestCacheBudget looks up addresses of several programs with a budget for
// about one of them.
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
			c.stop() // symbols that were dropped are read again all the same
			expect(t, ps.name(c.pid(), c.addrs[0]+1), "static_one", 1)
			expect(t, ps.name(c.pid(), c.addrs[1]), "global_two", 0)
			if ps.cache.bytes > ps.cache.budget {
				t.Errorf("%d bytes, budget %d", ps.cache.bytes, ps.cache.budget)
			}
		}
	}
	checkCacheBytes(t, &ps.cache)
}

// checkCacheBytes compares the account with what is there.
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
			t.Errorf("%v: account %d, is %d", m.key.file, m.size, s.bytes()+names)
		}
		sum += m.size
	}
	if sum != c.bytes {
		t.Errorf("account %d, is %d", c.bytes, sum)
	}
}

// TestCacheOldest checks which symbols go first, and that those in use stay.
func TestCacheOldest(t *testing.T) {
	c := &cache{budget: 2000, modules: make(map[moduleKey]*module)}
	m := make([]*module, 4)
	for i := range m {
		m[i] = c.module(moduleKey{file: fileID{inode: uint64(i)}}, nil, nil)
		m[i].used.Store(int64(10 - i)) // the first has been used last
		c.keep(m[i], &symbols{}, place{})
	}
	for i, want := range []bool{true, true, false, true} { // 512 bytes each, the third was the oldest
		if got := m[i].loaded.Load() != nil; got != want {
			t.Errorf("module %d: kept %t, want %t", i, got, want)
		}
	}
	c.grow(m[0], m[0].loaded.Load(), 5000)
	if m[0].loaded.Load() == nil || m[1].loaded.Load() != nil || c.bytes != 5512 {
		t.Errorf("a module larger than the budget: %d bytes", c.bytes)
	}
	c.grow(m[1], &symbols{}, 100)
	if c.bytes != 5512 {
		t.Errorf("symbols that were dropped count: %d bytes", c.bytes)
	}
	for i := range m {
		c.release(m[i])
	}
	if len(c.modules) != 1 {
		t.Errorf("%d modules, want the one that is loaded", len(c.modules))
	}
}

// TestCacheHoldsSome opens a module whose file was not held, since too many
// were, by its path.
func TestCacheHoldsSome(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	ps.cache.held = maxHeld
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	if ps.cache.held != maxHeld {
		t.Errorf("%d files held, the limit is %d", ps.cache.held, maxHeld)
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
		t.Errorf("%d bytes are left of %d", ps.cache.bytes, bytes)
	}
	c := start(t, file)
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	if ps.cache.bytes != bytes {
		t.Errorf("%d bytes for a third process, %d before", ps.cache.bytes, bytes)
	}
}

// TestManyProcesses remembers more processes than there is room for.
func TestManyProcesses(t *testing.T) {
	ps := newProcesses(t)
	if err := ps.Remember(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	for i := range maxProcesses {
		ps.Remember(-1 - i) // no such process
	}
	if _, ok := ps.pids[os.Getpid()]; ok || len(ps.pids) != maxProcesses {
		t.Errorf("%d processes, the first is there: %t", len(ps.pids), ok)
	}
	if ps.cache.held != 0 {
		t.Errorf("%d files held", ps.cache.held)
	}
}

// TestConcurrent has several goroutines name, remember and forget the same
// process; the race detector looks on.
func TestConcurrent(t *testing.T) {
	ps := newProcesses(t)
	ps.cache.budget = 1 // drop symbols all the time
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
