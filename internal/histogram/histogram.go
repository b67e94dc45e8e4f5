// Package histogram keeps distributions of durations and renders them. It knows
// nothing of BPF, only how bpf/hist.bpf.h cuts durations into slots: log-linear
// ones, fine enough for percentiles to be true to a few per cent, and nested
// exactly in the powers of two of the unit that is shown.
package histogram

import "slices"

// Histogram is the distribution of a number of durations. Their count, sum, least
// and greatest are exact, as a whole and in every slot. It holds 40 bytes for each
// slot that occurs. It is not safe for concurrent use.
//
// The unit is the scale of its slots: all that is known of it, bounds and bars,
// are methods of [Unit], so that a linear scale may take that place.
type Histogram struct {
	unit  Unit
	total Slot
	cells []cell // by slot, none empty
}

type cell struct {
	slot int
	Slot
}

// New returns an empty histogram whose slots are cut for the unit.
func New(unit Unit) *Histogram {
	return &Histogram{unit: unit}
}

// Add counts the durations of one slot, as found in an entry of BPF's map hists.
// The same slot of several CPUs is added up. It panics for what is no slot.
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

// search returns the index of the first cell whose slot is not below the given one.
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

// Merge counts what other counted. It panics if the units differ, as then the
// slots do. It allocates only if slots come new and there is no room for them.
func (h *Histogram) Merge(other *Histogram) {
	if h.unit != other.unit {
		panic("histogram: merge " + other.unit.String() + " into " + h.unit.String())
	}
	h.total.add(other.total)
	from := other.cells
	i, k := len(h.cells), len(h.cells)+h.lacks(from)
	h.cells = slices.Grow(h.cells, k-i)[:k]
	// From the back, so that no cell is overwritten before it has moved.
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

// lacks returns how many of the cells have slots that h has not.
func (h *Histogram) lacks(cells []cell) int {
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

// Unit returns the unit that the histogram was made for.
func (h *Histogram) Unit() Unit {
	return h.unit
}

// Bucket is a slot that occurs: the durations lo <= ns < hi and what is known of
// them, all in nanoseconds. See [Unit.Bounds] for the last slot.
type Bucket struct {
	Lo, Hi uint64
	Slot
}

// Buckets returns the slots that are not empty, in order.
func (h *Histogram) Buckets() []Bucket {
	buckets := make([]Bucket, len(h.cells))
	for i, c := range h.cells {
		lo, hi := h.unit.Bounds(c.slot)
		buckets[i] = Bucket{lo, hi, c.Slot}
	}
	return buckets
}
