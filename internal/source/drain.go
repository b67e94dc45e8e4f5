package source

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
)

// drain moves the values of the epochs that have ended from the maps to the histograms.
func (h *hists) drain(s *tool.Session) error {
	if h.byLabel == nil {
		h.byLabel = map[any]*histogram.Histogram{}
	}
	hasEnded := h.epochs.hasEnded(s)
	var err error
	if h.plain {
		err = h.drainPlain(s.Objects.Maps["hists_plain"], hasEnded)
	} else {
		err = h.drainKeyed(s.Objects.Maps["hists"], hasEnded, !s.Objects.Attached())
	}
	if err != nil {
		return err
	}
	return h.drainExemplars(s, hasEnded)
}

// empty drains the map before it is full.
func (h *hists) empty(s *tool.Session) error {
	if err := h.drain(s); err != nil || h.stacks == nil {
		return err
	}
	return h.endDrain()
}

// slotsKept returns the number of slots of all histograms.
func (h *hists) slotsKept() (n int) {
	for _, hist := range h.byLabel {
		n += hist.NonEmpty()
	}
	return n
}

func (h *hists) drainPlain(m *ebpf.Map, hasEnded func(epoch uint32) bool) error {
	noKey := reflect.New(h.entry.Field(0).Type).UnsafePointer()
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

func (h *hists) drainKeyed(m *ebpf.Map, hasEnded func(epoch uint32) bool, last bool) error {
	slotAt, epochAt := h.entry.Field(1).Offset, h.entry.Field(2).Offset
	old := probe.NewEntries(h.entry)
	var slots []histogram.Slot
	err := probe.EachOf(m, h.entry, reflect.TypeFor[histogram.Slot](), func(e, slot unsafe.Pointer) {
		if hasEnded(uint32(*(*uint8)(unsafe.Add(e, epochAt)))) {
			old.Append(e)
			slots = append(slots, *(*histogram.Slot)(slot))
		}
	})
	if err != nil {
		return fmt.Errorf("read histograms: %w", err)
	}
	if err := h.awaitStacks(old, last); err != nil {
		return err
	}
	for i := range slots {
		key := old.At(i)
		h.add(key, int(*(*uint16)(unsafe.Add(key, slotAt))), &slots[i])
	}
	if err := old.Delete(m); err != nil {
		return fmt.Errorf("clear histograms: %w", err)
	}
	return nil
}

// awaitStacks waits until the stacks of the keys are symbolized.
func (h *hists) awaitStacks(entries *probe.Entries, last bool) error {
	if h.stacks == nil {
		return nil
	}
	if last {
		return h.finish()
	}
	ids := map[stacktrace.StackID]bool{}
	for i := range entries.Len() {
		h.addIDs(ids, entries.At(i))
	}
	return h.await(ids)
}

func (h *hists) add(key unsafe.Pointer, nr int, slot *histogram.Slot) {
	if slot.Count == 0 {
		return
	}
	label := h.labelOf(key)
	hist := h.byLabel[label]
	if hist == nil {
		hist = h.newHistogram()
		h.byLabel[label] = hist
	}
	hist.Add(nr, *slot)
}

func (h *hists) newHistogram() *histogram.Histogram {
	if h.exponential {
		return histogram.NewExponential(h.unit)
	}
	return histogram.New(h.unit)
}

// drainExemplars moves the exemplars of the epochs that have ended to the histograms. There are none if
// the values belong to no task, or slots are not exponential.
func (h *hists) drainExemplars(s *tool.Session, hasEnded func(epoch uint32) bool) error {
	m := s.Objects.Maps["hist_exemplars"]
	if m == nil {
		return nil
	}
	slotAt, epochAt := h.entry.Field(1).Offset, h.entry.Field(2).Offset
	old := probe.NewEntries(h.entry)
	var exemplars []histExemplar
	err := probe.EachOf(m, h.entry, reflect.TypeFor[histExemplar](), func(e, exemplar unsafe.Pointer) {
		if hasEnded(uint32(*(*uint8)(unsafe.Add(e, epochAt)))) {
			old.Append(e)
			exemplars = append(exemplars, *(*histExemplar)(exemplar))
		}
	})
	if err != nil {
		return fmt.Errorf("read exemplars: %w", err)
	}
	for i := range exemplars {
		key := old.At(i)
		hist := h.byLabel[h.labelOf(key)]
		if hist == nil { // its container was not known yet when the label of the value was determined
			continue
		}
		if err := h.addExemplar(s, hist, int(*(*uint16)(unsafe.Add(key, slotAt))), &exemplars[i]); err != nil {
			return err
		}
	}
	if err := old.Delete(m); err != nil {
		return fmt.Errorf("clear exemplars: %w", err)
	}
	return nil
}

func (h *hists) addExemplar(s *tool.Session, hist *histogram.Histogram, slot int, e *histExemplar) error {
	if err := s.Wall(&e.TimeNs); err != nil {
		return err
	}
	to := h.unit.NewExemplar(slot, e.Value)
	to.Time, to.CgroupID, to.PID, to.TID, to.Comm = e.TimeNs, e.CgroupID, e.PID, e.TID, e.Comm
	to.Container = s.Env.Owner(e.CgroupID).Name()
	hist.AddExemplar(slot, to)
	return nil
}
