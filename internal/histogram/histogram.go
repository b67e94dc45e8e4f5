// Package histogram aggregates durations into log-linear histograms and renders them as
// text and JSON. It does not depend on BPF; it only implements the same slots as
// bpf/hist.bpf.h. There are 16 slots per power of two, so percentiles are accurate to a
// few per cent, and slots nest exactly in the power-of-two buckets of text output.
//
// Histograms that are exported have exponential slots instead: the buckets of Prometheus
// native histograms of schema 3 ([NewExponential], [Exponential]).
package histogram

import "slices"

// Histogram is a distribution of durations. Count, sum, minimum and maximum are exact,
// both in total and per slot. It takes 40 bytes per non-empty slot. It is not safe for
// concurrent use.
//
// The unit defines the scale of the slots, unless they are exponential.
type Histogram struct {
	unit        Unit
	exponential bool
	total       Slot
	cells       []cell // non-empty slots, in ascending order
	exemplars   map[int]Exemplar
}

type cell struct {
	slot int
	Slot
}

// New returns an empty histogram with the slots of the unit.
func New(unit Unit) *Histogram {
	return &Histogram{unit: unit}
}

// NewExponential returns an empty histogram with exponential slots, whose statistics have the unit.
func NewExponential(unit Unit) *Histogram {
	return &Histogram{unit: unit, exponential: true}
}

// NonEmpty returns the number of slots that have durations.
func (h *Histogram) NonEmpty() int { return len(h.cells) }

// Add adds the durations of one slot, as read from an entry of the BPF map "hists".
// Entries for the same slot on several CPUs are summed. Add panics if slot is invalid.
func (h *Histogram) Add(slot int, s Slot) {
	checkSlot(slot)
	if s.Count == 0 {
		return
	}
	h.total.add(s)
	i := h.search(slot)
	if i < len(h.cells) && h.cells[i].slot == slot {
		h.cells[i].add(s)
		return
	}
	h.cells = slices.Insert(h.cells, i, cell{slot, s})
}

// search returns the index of the first cell whose slot is not less than the given one.
func (h *Histogram) search(slot int) int {
	lo, hi := 0, len(h.cells)
	for lo < hi {
		mid := (lo + hi) / 2
		if h.cells[mid].slot < slot {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Merge adds the durations of other, and its exemplars. It panics if the units or the kinds of slots
// differ, because the slots then differ too. It allocates only if h lacks slots of other and capacity for them.
func (h *Histogram) Merge(other *Histogram) {
	if h.unit != other.unit || h.exponential != other.exponential {
		panic("histogram: merge " + other.unit.String() + " into " + h.unit.String())
	}
	for slot, e := range other.exemplars {
		h.AddExemplar(slot, e)
	}
	h.total.add(other.total)
	from := other.cells
	i, k := len(h.cells), len(h.cells)+h.countMissing(from)
	h.cells = slices.Grow(h.cells, k-i)[:k]
	// Merge from the end, so that no cell is overwritten before it is moved.
	for j := len(from) - 1; j >= 0; {
		k--
		switch {
		case i == 0 || h.cells[i-1].slot < from[j].slot:
			h.cells[k] = from[j]
			j--
		case h.cells[i-1].slot > from[j].slot:
			i--
			h.cells[k] = h.cells[i]
		default:
			i--
			h.cells[k] = h.cells[i]
			h.cells[k].add(from[j].Slot)
			j--
		}
	}
}

// countMissing returns the number of cells whose slots h does not contain.
func (h *Histogram) countMissing(cells []cell) int {
	n, i := 0, 0
	for _, c := range cells {
		for i < len(h.cells) && h.cells[i].slot < c.slot {
			i++
		}
		if i == len(h.cells) || h.cells[i].slot > c.slot {
			n++
		}
	}
	return n
}

// Unit returns the unit of the histogram.
func (h *Histogram) Unit() Unit {
	return h.unit
}

// SlotOf returns the slot in which programs count a value.
func (h *Histogram) SlotOf(value uint64) int {
	if h.exponential {
		return h.unit.exponentialSlotOf(value)
	}
	return h.unit.SlotOf(value)
}

// bounds returns the range of durations of a slot, lo <= ns < hi.
func (h *Histogram) bounds(slot int) (lo, hi uint64) {
	if h.exponential {
		return h.unit.exponentialRange(slot)
	}
	return h.unit.Bounds(slot)
}

// Bucket is a non-empty slot: the durations Lo <= ns < Hi, in nanoseconds. [Unit.Bounds] describes
// the last slot.
type Bucket struct {
	Lo, Hi uint64
	Slot
}

// Buckets returns the non-empty slots in ascending order.
func (h *Histogram) Buckets() []Bucket {
	buckets := make([]Bucket, len(h.cells))
	for i, c := range h.cells {
		lo, hi := h.bounds(c.slot)
		buckets[i] = Bucket{lo, hi, c.Slot}
	}
	return buckets
}
