package tool

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/histogram"
)

// drainBatch is how many entries one system call moves.
const drainBatch = 4096

// drain moves the values of the epochs that are over out of the maps. Before the end
// that is all but the current one; at the end, with nothing attached, all.
func (h *Hists[K, L]) drain(s *session) error {
	if h.hists == nil {
		h.hists = map[L]*histogram.Histogram{}
	}
	over := h.epochs.over(s)
	if h.plain {
		return h.drainPlain(s.objects.Maps["hists_plain"], over)
	}
	return h.drainKeyed(s.objects.Maps["hists"], over, !s.objects.Attached())
}

func (h *Hists[K, L]) drainPlain(m *ebpf.Map, over func(epoch uint32) bool) error {
	var none K
	for epoch := range uint32(2) {
		if !over(epoch) {
			continue
		}
		var cpus []histSlots
		if err := m.Lookup(epoch, &cpus); err != nil {
			return fmt.Errorf("read histogram: %w", err)
		}
		for cpu := range cpus {
			for nr := range cpus[cpu].Slots {
				h.add(none, nr, &cpus[cpu].Slots[nr])
			}
		}
		// CPUs without a value get zeros. Structs would be written field by field.
		if err := m.Put(epoch, cpus[:0]); err != nil {
			return fmt.Errorf("clear histogram: %w", err)
		}
	}
	return nil
}

func (h *Hists[K, L]) drainKeyed(m *ebpf.Map, over func(epoch uint32) bool, last bool) error {
	var old []histEntry[K]
	var slots []histogram.Slot
	err := eachEntry(m, func(e *histEntry[K], slot *histogram.Slot) {
		if over(uint32(e.Epoch)) {
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
	if err := deleteAll(m, old); err != nil {
		return fmt.Errorf("clear histograms: %w", err)
	}
	return nil
}

// awaitStacks returns when the stacks of the keys have their names.
func (h *Hists[K, L]) awaitStacks(entries []histEntry[K], last bool) error {
	if h.Stacks == nil {
		return nil
	}
	if last {
		return h.finish()
	}
	ids := map[StackID]bool{}
	for i := range entries {
		h.addIDs(ids, unsafe.Pointer(&entries[i].Key))
	}
	h.traces.await(ids)
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

// eachEntry calls yield for all entries of a map, by batches from kernel 5.6 on.
func eachEntry[K, V any](m *ebpf.Map, yield func(*K, *V)) error {
	keys, values := make([]K, drainBatch), make([]V, drainBatch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if errors.Is(err, ebpf.ErrNotSupported) {
			return eachSingle(m, yield)
		}
		for i := range n {
			yield(&keys[i], &values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func eachSingle[K, V any](m *ebpf.Map, yield func(*K, *V)) error {
	var key K
	var val V
	it := m.Iterate()
	for it.Next(&key, &val) {
		yield(&key, &val)
	}
	return it.Err()
}

func deleteAll[K any](m *ebpf.Map, keys []K) error {
	if len(keys) == 0 {
		return nil
	}
	if _, err := m.BatchDelete(keys, nil); err == nil || !errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return deleteSingle(m, keys)
}

func deleteSingle[K any](m *ebpf.Map, keys []K) error {
	for i := range keys {
		if err := m.Delete(&keys[i]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
