package histogram

import "math"

// Exponential has the buckets of a Prometheus native histogram: bucket i contains the values v with
// 2^((i-1)/2^Schema) < v <= 2^(i/2^Schema), in seconds for durations, else in the base unit. The same
// bucket of an OpenTelemetry exponential histogram of scale Schema has the index i-1.
//
// An empty one takes the schema of what is merged into it.
type Exponential struct {
	Schema      int
	Count, Zero uint64         // all values, and those that are 0
	Sum         float64        // in seconds or the base unit
	Buckets     map[int]uint64 // by index
}

// ClassicBucket is a bucket of a Prometheus classic histogram.
type ClassicBucket struct {
	Le    float64 // upper bound, inclusive
	Count uint64  // values up to Le, including those of buckets before
}

// Exponential returns the values in buckets of schema 3. It panics if slots are not exponential.
func (h *Histogram) Exponential() Exponential {
	if !h.exponential {
		panic("histogram: " + h.unit.String() + " with slots that are not exponential")
	}
	e := Exponential{
		Schema: schema, Count: h.total.Count, Sum: float64(h.total.Sum) / float64(h.unit.perBase()),
		Buckets: make(map[int]uint64, len(h.cells)),
	}
	for _, c := range h.cells {
		if index, ok := h.unit.exponentialIndex(c.slot); ok {
			e.Buckets[index] = c.Count
		} else {
			e.Zero = c.Count
		}
	}
	return e
}

// Add adds a value of the unit as programs count it: nanoseconds, bytes or a plain number. The schema
// must not be above 3.
func (e *Exponential) Add(value uint64, u Unit) {
	one := Exponential{Schema: schema, Count: 1, Sum: float64(value) / float64(u.perBase())}
	if index, ok := u.exponentialIndex(u.exponentialSlotOf(value)); ok {
		one.Buckets = map[int]uint64{index: 1}
	} else {
		one.Zero = 1
	}
	e.Merge(one)
}

// Merge adds the values of other. If the schemas differ, the result has the lower one.
func (e *Exponential) Merge(other Exponential) {
	if e.Count == 0 && len(e.Buckets) == 0 {
		e.Schema = other.Schema
	}
	e.Downscale(other.Schema)
	if e.Buckets == nil {
		e.Buckets = make(map[int]uint64, len(other.Buckets))
	}
	e.Count += other.Count
	e.Zero += other.Zero
	e.Sum += other.Sum
	for index, count := range other.Buckets {
		e.Buckets[downscaled(index, other.Schema-e.Schema)] += count
	}
}

// Downscale joins buckets, so that the schema is at most the given one. That is exact.
func (e *Exponential) Downscale(schema int) {
	if schema >= e.Schema {
		return
	}
	joined := make(map[int]uint64, len(e.Buckets))
	for index, count := range e.Buckets {
		joined[downscaled(index, e.Schema-schema)] += count
	}
	e.Schema, e.Buckets = schema, joined
}

// downscaled returns the index of the bucket of a schema that is lower by this number.
func downscaled(index, by int) int { return (index-1)>>by + 1 }

// Classic returns classic buckets with the bounds 2^lowest to 2^highest, without the last one, +Inf,
// whose count is Count. That is exact. With a negative schema, it has the bounds of this schema only.
func (e *Exponential) Classic(lowest, highest int) []ClassicBucket {
	var buckets []ClassicBucket
	for power := lowest; power <= highest; power++ {
		last := power << max(0, e.Schema) >> max(0, -e.Schema)
		if e.Schema < 0 && last<<-e.Schema != power {
			continue
		}
		b := ClassicBucket{Le: math.Ldexp(1, power), Count: e.Zero}
		for index, count := range e.Buckets {
			if index <= last {
				b.Count += count
			}
		}
		buckets = append(buckets, b)
	}
	return buckets
}
