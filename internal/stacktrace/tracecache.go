package stacktrace

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"weak"

	"github.com/corescope/corescope/internal/value"
)

// traceCache maps stack IDs to symbolized stacks.
//
// Programs send a stack once, so an entry is dropped in two steps, a review. The first step makes
// programs send the stack again when it occurs again. Programs that run at that time can still
// count the ID without sending the stack. They end before the next drain, and their counts are read
// by that drain or the following one. The second step, after that drain, drops the entries that are
// still unused.
type traceCache struct {
	mu       sync.Mutex
	traces   map[StackID]*cachedTrace
	seed     maphash.Seed
	interned map[uint64][]weak.Pointer[value.Stack] // by a hash of the frames

	late        int    // stacks that are to be symbolized again
	drains      uint64 // completed drains
	minSize     int    // size below which no review starts
	threshold   int    // size above which the next review starts
	reviewStart uint64 // value of drains at the first step
	inReview    bool
}

type cachedTrace struct {
	trace value.Trace
	used  uint64 // value of drains when the ID was last counted
	// isCleared is set if programs will send the stack again.
	isCleared bool
	// late is the stack before symbolization, if it should be symbolized again when it is used.
	late *rawStack
	// origin is nil for kernel stacks.
	origin *origin
}

// maxLate is the maximum number of stacks that are to be symbolized again, of at most 5 KB each.
const maxLate = 1 << 12

// cachedTraces is the size below which no entries are dropped. An entry takes about 100 bytes; the
// frames are shared by all stacks with the same functions.
const cachedTraces = 1 << 14

// ProgramStacks accesses the stack IDs that programs store.
type ProgramStacks interface {
	// storedIDs returns the IDs that programs have stored and can count later.
	storedIDs() (map[StackID]bool, error)
	// clearSent makes programs send these stacks again when they occur again.
	clearSent([]StackID) error
}

func newTraceCache(minSize int) *traceCache {
	return &traceCache{
		traces: map[StackID]*cachedTrace{}, seed: maphash.MakeSeed(),
		interned: map[uint64][]weak.Pointer[value.Stack]{}, minSize: minSize, threshold: minSize,
	}
}

// put adds a stack.
func (c *traceCache) put(id StackID, s value.Stack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(id, s)
}

// takeLate returns the stack before symbolization if it is to be symbolized again, once, otherwise
// nil.
func (c *traceCache) takeLate(id StackID) *rawStack {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.traces[id]
	if t == nil {
		return nil
	}
	raw := t.late
	c.forgetLate(t)
	return raw
}

func (c *traceCache) forgetLate(t *cachedTrace) {
	if t.late != nil {
		t.late = nil
		c.late--
	}
}

func (c *traceCache) add(id StackID, s value.Stack) *cachedTrace {
	if old := c.traces[id]; old != nil {
		c.forgetLate(old)
	}
	t := &cachedTrace{trace: c.intern(s), used: c.drains}
	c.traces[id] = t
	return t
}

// get returns the trace of an ID that was counted. If the stack was not received, the trace has the
// single frame [lost stack].
func (c *traceCache) get(id StackID) value.Trace {
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

// HasAll reports whether all stacks have been received. It marks those that have as used.
func (c *traceCache) HasAll(ids map[StackID]bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := true
	for id := range ids {
		all = c.use(id) != nil && all
	}
	return all
}

// intern returns a trace that stacks with the same frames share.
func (c *traceCache) intern(s value.Stack) value.Trace {
	hash := c.hash(s)
	for _, w := range c.interned[hash] {
		if same := w.Value(); same != nil && slices.Equal(*same, s) {
			return value.TraceOf(same)
		}
	}
	c.interned[hash] = append(c.interned[hash], weak.Make(&s))
	return value.TraceOf(&s)
}

func (c *traceCache) hash(s value.Stack) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	var numbers [24]byte
	for i := range s {
		f := &s[i]
		h.WriteString(f.Symbol)
		h.WriteString(f.Module)
		binary.NativeEndian.PutUint64(numbers[:], f.Offset)
		binary.NativeEndian.PutUint64(numbers[8:], uint64(f.Address))
		binary.NativeEndian.PutUint64(numbers[16:], uint64(f.Line))
		h.Write(numbers[:])
	}
	return h.Sum64()
}

// EndDrain is called after each drain, when the IDs that it read have been looked up. If the cache
// is large, it drops entries that are not used any more.
func (c *traceCache) EndDrain(programs ProgramStacks) error {
	c.mu.Lock()
	inReview, step, size := c.inReview, c.drains-c.reviewStart, len(c.traces)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drains++
	}()
	switch {
	case !inReview && size > c.threshold:
		return c.clearUnused(programs)
	case inReview && step == 1:
		return c.useStored(programs)
	case inReview:
		c.dropCleared()
	}
	return nil
}

// clearUnused starts a review: it clears the IDs that have not been used for two drains.
func (c *traceCache) clearUnused(programs ProgramStacks) error {
	if err := c.useStored(programs); err != nil {
		return err
	}
	c.mu.Lock()
	var unused []StackID
	for id, t := range c.traces {
		if t.used+2 <= c.drains {
			t.isCleared = true
			unused = append(unused, id)
		}
	}
	c.reviewStart, c.inReview = c.drains, true
	c.mu.Unlock()
	if err := programs.clearSent(unused); err != nil {
		return fmt.Errorf("clear IDs of unused stacks: %w", err)
	}
	return nil
}

// useStored marks the IDs that programs have stored as used.
func (c *traceCache) useStored(programs ProgramStacks) error {
	ids, err := programs.storedIDs()
	if err != nil {
		return fmt.Errorf("read stored stack IDs: %w", err)
	}
	c.HasAll(ids)
	return nil
}

// dropCleared ends a review.
func (c *traceCache) dropCleared() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, t := range c.traces {
		if t.isCleared && t.used <= c.reviewStart {
			c.forgetLate(t)
			delete(c.traces, id)
		}
		t.isCleared = false
	}
	for hash, same := range c.interned {
		same = slices.DeleteFunc(same, func(w weak.Pointer[value.Stack]) bool { return w.Value() == nil })
		if len(same) == 0 {
			delete(c.interned, hash)
		} else {
			c.interned[hash] = same
		}
	}
	c.inReview, c.threshold = false, max(c.minSize, 2*len(c.traces))
}
