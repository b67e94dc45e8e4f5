package ring

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"
)

// timeSize is the size of the first member of every event: its time. All events of a tool use the same
// clock (struct task_info in task.bpf.h).
const timeSize = 8

// queue delays samples and returns them in the order of their time.
type queue struct {
	samples []sample // in order up to ready
	given   int
	ready   int
}

type sample struct {
	time uint64
	read time.Time
	data []byte
}

func (q *queue) add(data []byte, read time.Time) {
	q.samples = append(q.samples, sample{binary.NativeEndian.Uint64(data), read, data})
}

// held returns the number of samples that were not returned yet.
func (q *queue) held() int { return len(q.samples) - q.given }

// release makes the samples ready that were read until then, and those with an earlier time.
func (q *queue) release(by time.Time) {
	q.samples = slices.Delete(q.samples, 0, q.given)
	q.given, q.ready = 0, 0
	slices.SortStableFunc(q.samples, func(a, b sample) int { return cmp.Compare(a.time, b.time) })
	for i := range q.samples {
		if !q.samples[i].read.After(by) {
			q.ready = i + 1
		}
	}
}

// next returns the next sample that is ready, or nil.
func (q *queue) next() []byte {
	if q.given >= q.ready {
		return nil
	}
	data := q.samples[q.given].data
	q.given++
	return data
}
