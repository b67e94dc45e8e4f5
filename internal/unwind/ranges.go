package unwind

import (
	"cmp"
	"slices"
	"time"
)

// span is a number of places of a map, one behind the other.
type span struct{ first, count uint32 }

func (s span) end() uint32 { return s.first + s.count }

// ranges are the places of a map that are free. What is given back is not given away at
// once, as programs in the kernel may still be reading it.
type ranges struct {
	free  []span // by place, none next to another
	aside []aside
	now   func() time.Time
}

// aside is a span that is free in a while.
type aside struct {
	span
	since time.Time
}

// rest is how long nothing is written where something was. Programs take microseconds.
const rest = time.Second

func newRanges(count int) *ranges {
	return &ranges{free: []span{{0, uint32(count)}}, now: time.Now}
}

// take returns so many places, if there are any in a row.
func (r *ranges) take(count int) (span, bool) {
	r.settle()
	for i := range r.free {
		f := &r.free[i]
		if f.count < uint32(count) {
			continue
		}
		s := span{f.first, uint32(count)}
		f.first += s.count
		f.count -= s.count
		if f.count == 0 {
			r.free = slices.Delete(r.free, i, i+1)
		}
		return s, true
	}
	return span{}, false
}

// give takes places back.
func (r *ranges) give(s span) {
	if s.count > 0 {
		r.aside = append(r.aside, aside{s, r.now()})
	}
}

// left is how many are free, now or in a while.
func (r *ranges) left() (n int) {
	for _, f := range r.free {
		n += int(f.count)
	}
	for _, a := range r.aside {
		n += int(a.count)
	}
	return n
}

// settle frees what was set aside for long enough.
func (r *ranges) settle() {
	now, n := r.now(), 0
	for n < len(r.aside) && now.Sub(r.aside[n].since) >= rest {
		r.free = append(r.free, r.aside[n].span)
		n++
	}
	if n == 0 {
		return
	}
	r.aside = slices.Delete(r.aside, 0, n)
	slices.SortFunc(r.free, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	joined := r.free[:1]
	for _, s := range r.free[1:] {
		if last := &joined[len(joined)-1]; last.end() == s.first {
			last.count += s.count
		} else {
			joined = append(joined, s)
		}
	}
	r.free = joined
}
