package stacktrace

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/corescope/corescope/internal/value"
)

// fakePrograms sends a stack that has not been sent, as stacks.bpf.h does.
type fakePrograms struct {
	cache  *traceCache
	sent   map[StackID]bool
	stored map[StackID]bool
}

func (p *fakePrograms) storedIDs() (map[StackID]bool, error) { return p.stored, nil }

func (p *fakePrograms) clearSent(ids []StackID) error {
	for _, id := range ids {
		delete(p.sent, id)
	}
	return nil
}

// observe returns the ID of a stack, and sends the stack if necessary.
func (p *fakePrograms) observe(id StackID) StackID {
	if !p.sent[id] {
		p.sent[id] = true
		p.cache.put(id, value.Stack{{Symbol: fmt.Sprint("function ", id)}})
	}
	return id
}

// TestTraceCache counts many different stacks, some of them repeatedly, and drains them. All of
// them must be found, and the cache must not grow with their number.
func TestTraceCache(t *testing.T) {
	const minSize, perDrain, drains, always, stored = 1000, 700, 200, 7, 8
	p := &fakePrograms{cache: newTraceCache(minSize), sent: map[StackID]bool{}, stored: map[StackID]bool{}}
	p.stored[p.observe(stored)] = true
	find := func(id StackID) {
		t.Helper()
		if s := p.cache.get(id); s.Frames()[0].Symbol != fmt.Sprint("function ", id) {
			t.Fatalf("stack %d is %s", id, s.Frames()[0].Symbol)
		}
	}
	var late []StackID // counted, but only read by the drain after the next one
	largest := 0
	for drain := range drains {
		counted := late
		late = nil
		for i := range perDrain {
			id := StackID(1000 + drain*perDrain + i)
			counted = append(counted, p.observe(id))
			if drain > 5 { // stacks that were dropped or will be
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
		largest = max(largest, len(p.cache.traces))
	}
	find(stored)
	if limit := minSize + 20*perDrain; largest > limit {
		t.Errorf("the cache had %d entries, want at most %d of %d stacks", largest, limit, drains*perDrain)
	}
	p.cache.dropCleared()
	runtime.GC()
	p.cache.dropCleared()
	if n := len(p.cache.interned); n > 2*len(p.cache.traces) {
		t.Errorf("the cache has %d distinct stacks for %d entries", n, len(p.cache.traces))
	}
}

// TestTraceCacheLateCount covers a program that finds an ID in stacks_sent just before it is
// cleared, and counts it just before the next drain.
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
	end() // the count belongs to the epoch that begins here
	if got := p.cache.get(id); got.Frames()[0].Symbol != "function 5" {
		t.Fatalf("got %q, want function 5", got.Frames()[0].Symbol)
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
