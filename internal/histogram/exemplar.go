package histogram

import (
	"cmp"
	"slices"

	"github.com/corescope/corescope/internal/value"
)

// Exemplar is one of the values in an exponential slot, with the task that it belongs to.
type Exemplar struct {
	Index    int        // bucket of Exponential
	IsZero   bool       // the value is 0, which is in no bucket
	Value    float64    // in seconds or the base unit
	Time     value.Time // when it was counted, wall time
	CgroupID uint64
	// Container is the name of the container of the cgroup, "" outside containers.
	Container string
	PID, TID  uint32     // in the initial PID namespace
	Comm      value.Comm // of the thread
}

// NewExemplar returns an exemplar of the slot. The value is as programs count it.
func (u Unit) NewExemplar(slot int, counted uint64) Exemplar {
	index, ok := u.exponentialIndex(slot)
	if !ok {
		return Exemplar{IsZero: true}
	}
	return Exemplar{Index: index, Value: float64(counted) / float64(u.perBase())}
}

// AddExemplar sets the exemplar of a slot. If it has one, the later one remains.
func (h *Histogram) AddExemplar(slot int, e Exemplar) {
	if old, ok := h.exemplars[slot]; ok && old.Time >= e.Time {
		return
	}
	if h.exemplars == nil {
		h.exemplars = map[int]Exemplar{}
	}
	h.exemplars[slot] = e
}

// Exemplars returns at most one value per non-empty exponential slot, in ascending order. Values whose
// task is not known exactly have none.
func (h *Histogram) Exemplars() []Exemplar {
	all := make([]Exemplar, 0, len(h.exemplars))
	for _, e := range h.exemplars {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Exemplar) int { return cmp.Compare(a.Value, b.Value) })
	return all
}
