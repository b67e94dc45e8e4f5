package stacktrace

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"weak"

	"github.com/corescope/corescope/internal/value"
)

// traceCache maps stack IDs to symbolized stacks.
//
// Programs send a stack once, so an entry is dropped in two steps. The first step makes programs send
// the stack again if it occurs again. Programs that run at that time may still count the ID without
// sending the stack. They end before the next drain, and what they have counted is read by that drain
// or the one after it. The second step, after that drain, drops the entries that are still unused.
type traceCache struct {
	mu       sync.Mutex
	traces   map[StackID]*cachedTrace
	seed     maphash.Seed
	interned map[uint64][]weak.Pointer[value.Stack] // by a hash of the frames
	text     []byte

	drains  uint64 // completed drains
	least   int    // the cache is not reviewed below this size
	most    int    // size that starts a review
	review  uint64 // the drain of the first step, if isUnder
	isUnder bool   // a review is in progress
}

type cachedTrace struct {
	trace value.Trace
	used  uint64 // drain before which the ID was counted last
	// isForgotten is set if programs send the stack again when it occurs.
	isForgotten bool
}

// cachedTraces is the size below which no entries are dropped. An entry takes about 100 bytes; the
// frames are shared by all stacks with the same functions.
const cachedTraces = 1 << 14

// ProgramStacks is what the programs know about stacks.
type ProgramStacks interface {
	// held returns the IDs that programs have stored and may count later.
	held() (map[StackID]bool, error)
	// forget makes programs send these stacks when they occur again.
	forget([]StackID) error
}

func newTraceCache(least int) *traceCache {
	return &traceCache{
		traces: map[StackID]*cachedTrace{}, seed: maphash.MakeSeed(),
		interned: map[uint64][]weak.Pointer[value.Stack]{}, least: least, most: least,
	}
}

// put adds a stack that programs have sent.
func (c *traceCache) put(id StackID, s value.Stack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traces[id] = &cachedTrace{trace: c.intern(s), used: c.drains}
}

// of returns the trace of an ID that was counted. A stack that was never received has one frame,
// which states that.
func (c *traceCache) of(id StackID) value.Trace {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.use(id); t != nil {
		return t.trace
	}
	return c.intern(value.Stack{{Symbol: "[lost stack]"}})
}

func (c *traceCache) use(id StackID) *cachedTrace {
	t := c.traces[id]
	if t != nil {
		t.used = c.drains
	}
	return t
}

// HasAll reports whether all stacks have been received. It keeps those that have.
func (c *traceCache) HasAll(ids map[StackID]bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := true
	for id := range ids {
		all = c.use(id) != nil && all
	}
	return all
}

// intern returns the trace that all stacks with the same frames share while it is in use.
func (c *traceCache) intern(s value.Stack) value.Trace {
	c.text = s.AppendJSON(c.text[:0])
	hash := maphash.Bytes(c.seed, c.text)
	for _, w := range c.interned[hash] {
		if same := w.Value(); same != nil && slices.Equal(*same, s) {
			return value.TraceOf(same)
		}
	}
	c.interned[hash] = append(c.interned[hash], weak.Make(&s))
	return value.TraceOf(&s)
}

// EndDrain is called after a drain, when the IDs that it has read have been looked up. If the cache
// is large it drops entries that are no longer used.
func (c *traceCache) EndDrain(programs ProgramStacks) error {
	c.mu.Lock()
	isUnder, step, size := c.isUnder, c.drains-c.review, len(c.traces)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drains++
	}()
	switch {
	case !isUnder && size > c.most:
		return c.forgetUnused(programs)
	case isUnder && step == 1:
		return c.keepHeld(programs)
	case isUnder:
		c.dropForgotten()
	}
	return nil
}

// forgetUnused starts a review: programs are to send again what was unused for two drains.
func (c *traceCache) forgetUnused(programs ProgramStacks) error {
	if err := c.keepHeld(programs); err != nil {
		return err
	}
	c.mu.Lock()
	var unused []StackID
	for id, t := range c.traces {
		if t.used+2 <= c.drains {
			t.isForgotten = true
			unused = append(unused, id)
		}
	}
	c.review, c.isUnder = c.drains, true
	c.mu.Unlock()
	if err := programs.forget(unused); err != nil {
		return fmt.Errorf("clear IDs of unused stacks: %w", err)
	}
	return nil
}

func (c *traceCache) keepHeld(programs ProgramStacks) error {
	ids, err := programs.held()
	if err != nil {
		return fmt.Errorf("read IDs of stacks: %w", err)
	}
	c.HasAll(ids)
	return nil
}

// dropForgotten ends a review.
func (c *traceCache) dropForgotten() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, t := range c.traces {
		if t.isForgotten && t.used <= c.review {
			delete(c.traces, id)
		}
		t.isForgotten = false
	}
	for hash, same := range c.interned {
		same = slices.DeleteFunc(same, func(w weak.Pointer[value.Stack]) bool { return w.Value() == nil })
		if len(same) == 0 {
			delete(c.interned, hash)
		} else {
			c.interned[hash] = same
		}
	}
	c.isUnder, c.most = false, max(c.least, 2*len(c.traces))
}
