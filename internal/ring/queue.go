package ring

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"
)

// timeSize is the size of the first member of every event: its time. All events of a tool use the
// same clock (struct task_info in task.bpf.h).
const timeSize = 8

// queue delays samples and returns them in the order of their time.
type queue struct {
	samples  []sample // sorted up to ready
	returned int      // number of samples that next has returned
	ready    int      // number of samples that next may return
}

type sample struct {
	time uint64
	read time.Time
	data []byte
}

func (q *queue) add(data []byte, read time.Time) {
	q.samples = append(q.samples, sample{binary.NativeEndian.Uint64(data), read, data})
}

// pending returns the number of samples that were not returned yet.
func (q *queue) pending() int { return len(q.samples) - q.returned }

// release makes samples ready that were read until a time, and all samples with an earlier event
// time.
func (q *queue) release(until time.Time) {
	q.samples = slices.Delete(q.samples, 0, q.returned)
	q.returned, q.ready = 0, 0
	slices.SortStableFunc(q.samples, func(a, b sample) int { return cmp.Compare(a.time, b.time) })
	for i := range q.samples {
		if !q.samples[i].read.After(until) {
			q.ready = i + 1
		}
	}
}

// next returns the next sample that is ready, or nil.
func (q *queue) next() []byte {
	if q.returned >= q.ready {
		return nil
	}
	data := q.samples[q.returned].data
	q.returned++
	return data
}
