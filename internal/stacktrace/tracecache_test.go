package stacktrace

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/corescope/corescope/internal/value"
)

// fakePrograms send a stack if they have not sent it, as stacks.bpf.h does.
type fakePrograms struct {
	cache  *traceCache
	sent   map[StackID]bool
	stored map[StackID]bool
}

func (p *fakePrograms) held() (map[StackID]bool, error) { return p.stored, nil }

func (p *fakePrograms) forget(ids []StackID) error {
	for _, id := range ids {
		delete(p.sent, id)
	}
	return nil
}

// observe returns the ID of a stack.
func (p *fakePrograms) observe(id StackID) StackID {
	if !p.sent[id] {
		p.sent[id] = true
		p.cache.put(id, value.Stack{{Symbol: fmt.Sprint("function ", id)}})
	}
	return id
}

// TestTraceCache counts many different stacks, some of them again and again, and drains them. All
// of them must be found, and the cache must not grow with their number.
func TestTraceCache(t *testing.T) {
	const least, perDrain, drains, always, stored = 1000, 700, 200, 7, 8
	p := &fakePrograms{cache: newTraceCache(least), sent: map[StackID]bool{}, stored: map[StackID]bool{}}
	p.stored[p.observe(stored)] = true
	find := func(id StackID) {
		t.Helper()
		if s := p.cache.of(id); s.Frames()[0].Symbol != fmt.Sprint("function ", id) {
			t.Fatalf("stack %d is %s", id, s.Frames()[0].Symbol)
		}
	}
	var late []StackID // counted, but not read by the next drain
	most := 0
	for drain := range drains {
		counted := late
		late = nil
		for i := range perDrain {
			id := StackID(1000 + drain*perDrain + i)
			counted = append(counted, p.observe(id))
			if drain > 5 { // stacks that were dropped or are about to be
				old := id - StackID((1+i%5)*perDrain)
				late = append(late, p.observe(old))
			}
		}
		counted = append(counted, p.observe(always))
		for _, id := range counted {
			find(id)
		}
		if err := p.cache.EndDrain(p); err != nil {
			t.Fatal(err)
		}
		most = max(most, len(p.cache.traces))
	}
	find(stored)
	if limit := least + 20*perDrain; most > limit {
		t.Errorf("the cache had %d entries, want at most %d of %d stacks", most, limit, drains*perDrain)
	}
	p.cache.dropForgotten()
	runtime.GC()
	p.cache.dropForgotten()
	if n := len(p.cache.interned); n > 2*len(p.cache.traces) {
		t.Errorf("the cache has %d distinct stacks, and %d entries", n, len(p.cache.traces))
	}
}

// TestTraceCacheLateCount covers a program that looks up an ID just before it is cleared, and counts it
// just before the next drain.
func TestTraceCacheLateCount(t *testing.T) {
	p := &fakePrograms{cache: newTraceCache(0), sent: map[StackID]bool{}}
	id := p.observe(5)
	end := func() {
		t.Helper()
		if err := p.cache.EndDrain(p); err != nil {
			t.Fatal(err)
		}
	}
	for other := StackID(100); p.sent[id]; other++ {
		p.observe(other)
		end()
	}
	end() // the count is in the epoch that begins here
	if got := p.cache.of(id); got.Frames()[0].Symbol != "function 5" {
		t.Fatalf("got %q", got.Frames()[0].Symbol)
	}
	for range 2 {
		end()
	}
	if p.cache.traces[id] == nil {
		t.Error("the stack was dropped although it was counted")
	}
	for other := range StackID(100) {
		p.observe(200 + other)
		end()
	}
	if p.cache.traces[id] != nil {
		t.Error("the stack was not dropped although it was unused")
	}
}
