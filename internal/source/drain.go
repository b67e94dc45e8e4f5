package source

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
)

// drain moves the values of the epochs that have ended from the maps to the histograms.
func (h *Hists[K, L]) drain(s *tool.Session) error {
	if h.hists == nil {
		h.hists = map[L]*histogram.Histogram{}
	}
	hasEnded := h.epochs.hasEnded(s)
	if h.plain {
		return h.drainPlain(s.Objects.Maps["hists_plain"], hasEnded)
	}
	return h.drainKeyed(s.Objects.Maps["hists"], hasEnded, !s.Objects.Attached())
}

func (h *Hists[K, L]) drainPlain(m *ebpf.Map, hasEnded func(epoch uint32) bool) error {
	var noKey K
	for epoch := range uint32(2) {
		if !hasEnded(epoch) {
			continue
		}
		var cpus []histSlots
		if err := m.Lookup(epoch, &cpus); err != nil {
			return fmt.Errorf("read histogram: %w", err)
		}
		for cpu := range cpus {
			for nr := range cpus[cpu].Slots {
				h.add(noKey, nr, &cpus[cpu].Slots[nr])
			}
		}
		// Put writes zeros for CPUs without a value. Encoding a struct for each CPU would be slower.
		if err := m.Put(epoch, cpus[:0]); err != nil {
			return fmt.Errorf("clear histogram: %w", err)
		}
	}
	return nil
}

func (h *Hists[K, L]) drainKeyed(m *ebpf.Map, hasEnded func(epoch uint32) bool, last bool) error {
	var old []histEntry[K]
	var slots []histogram.Slot
	err := probe.EachEntry(m, func(e *histEntry[K], slot *histogram.Slot) {
		if hasEnded(uint32(e.Epoch)) {
			old, slots = append(old, *e), append(slots, *slot)
		}
	})
	if err != nil {
		return fmt.Errorf("read histograms: %w", err)
	}
	if err := h.awaitStacks(old, last); err != nil {
		return err
	}
	for i := range old {
		h.add(old[i].Key, int(old[i].Slot), &slots[i])
	}
	if err := probe.DeleteEntries(m, old); err != nil {
		return fmt.Errorf("clear histograms: %w", err)
	}
	return nil
}

// awaitStacks waits until the stacks of the keys are symbolized.
func (h *Hists[K, L]) awaitStacks(entries []histEntry[K], last bool) error {
	if h.Stacks == nil {
		return nil
	}
	if last {
		return h.finish()
	}
	ids := map[stacktrace.StackID]bool{}
	for i := range entries {
		h.addIDs(ids, unsafe.Pointer(&entries[i].Key))
	}
	h.traces.Await(ids)
	return nil
}

func (h *Hists[K, L]) add(key K, nr int, slot *histogram.Slot) {
	if slot.Count == 0 {
		return
	}
	label := h.Label(key)
	hist := h.hists[label]
	if hist == nil {
		hist = histogram.New(h.Unit)
		h.hists[label] = hist
	}
	hist.Add(nr, *slot)
}
