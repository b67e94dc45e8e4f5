package metric

import (
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/corescope/corescope/internal/histogram"
)

// Histogram is a metric with distributions of values.
type Histogram struct{ view view }

// Histogram is like [Store.Counter].
func (s *Store) Histogram(d Description) (*Histogram, error) {
	v, err := s.view(KindHistogram, d)
	return &Histogram{v}, err
}

// Add adds the counts of delta to the series with these values of the labels. Its Count is not
// used: the count of a series is the sum of its buckets, as consumers require. A series has the
// smallest schema that was added to it. It gets a smaller one when it has too many buckets
// (Options.MaxBuckets), and keeps that.
func (h *Histogram) Add(delta *histogram.Exponential, values ...string) {
	f := h.view.family
	f.mutex.Lock()
	defer f.mutex.Unlock()
	s := h.view.find(values, delta.Zero != 0 || len(delta.Buckets) > 0)
	if s.histogram.add(delta, f.options.MaxBuckets) {
		f.downscaled++
	}
}

// Exemplar is one of the values of a histogram, such as a slow case.
type Exemplar struct {
	Value  float64
	Time   time.Time
	Labels []Label // such as pid and comm
}

// Exemplar keeps an example for the values of a series, if the series exists. A series keeps one
// example per power of two, and only the newest ones (Options.MaxExemplars). Labels that exceed
// 128 characters of names and values in total are left out, because consumers refuse them. The
// labels are not retained, but their names are.
func (h *Histogram) Exemplar(e Exemplar, values ...string) {
	f := h.view.family
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if s := h.view.lookup(values); s != nil && e.Value > 0 && !math.IsInf(e.Value, 0) {
		s.histogram.exemplify(&e, f.options.MaxExemplars)
	}
}

// MinSchema is the smallest schema. All finite values fit in 128 of its buckets.
const MinSchema = -4

// Bucket is a non-empty bucket of a [Distribution]: its index as in [histogram.Exponential].
type Bucket struct {
	Index int
	Count uint64
}

// distribution is the state of a series of a histogram.
type distribution struct {
	schema      int
	used        bool // schema is set
	count, zero uint64
	sum         float64
	buckets     []Bucket // by index
	exemplars   []exemplar
}

// add adds counts and reports whether it had to choose a smaller schema because of too many buckets.
func (d *distribution) add(delta *histogram.Exponential, limit int) (downscaled bool) {
	if !d.used {
		d.schema, d.used = delta.Schema, true
	}
	if delta.Schema < d.schema {
		d.downscale(d.schema - delta.Schema)
	}
	shift := delta.Schema - d.schema
	for index, n := range delta.Buckets {
		d.addBucket(scaled(index, shift), n)
		d.count = saturated(d.count, n)
	}
	d.zero = saturated(d.zero, delta.Zero)
	d.count = saturated(d.count, delta.Zero)
	if delta.Sum > 0 && !math.IsInf(delta.Sum, 0) {
		d.sum += delta.Sum
	}
	for len(d.buckets) > limit && d.schema > MinSchema {
		d.downscale(1)
		downscaled = true
	}
	return downscaled
}

func saturated(a, b uint64) uint64 {
	if a+b < a {
		return math.MaxUint64
	}
	return a + b
}

func (d *distribution) addBucket(index int, n uint64) {
	if n == 0 {
		return
	}
	i, ok := slices.BinarySearchFunc(d.buckets, index, func(b Bucket, index int) int { return b.Index - index })
	if !ok {
		d.buckets = slices.Insert(d.buckets, i, Bucket{Index: index})
	}
	d.buckets[i].Count = saturated(d.buckets[i].Count, n)
}

// scaled returns the index of the bucket that contains bucket index of a schema that is larger by
// shift. A bucket contains its upper bound, so indexes are rounded up.
func scaled(index, shift int) int {
	return (index-1)>>shift + 1
}

// downscale reduces the schema by joining adjacent buckets.
func (d *distribution) downscale(by int) {
	d.schema -= by
	joined := d.buckets[:0]
	for _, b := range d.buckets {
		b.Index = scaled(b.Index, by)
		if n := len(joined); n > 0 && joined[n-1].Index == b.Index {
			joined[n-1].Count = saturated(joined[n-1].Count, b.Count)
		} else {
			joined = append(joined, b)
		}
	}
	d.buckets = joined
}

// exemplar is an Exemplar in memory that is used again for the next one.
type exemplar struct {
	octave int
	value  float64
	time   time.Time
	names  []string
	text   []byte // the values of the labels
	ends   []int  // of the values in text
}

// Octave returns k for the values 2^(k-1) < v <= 2^k.
func Octave(v float64) int {
	fraction, exponent := math.Frexp(v)
	if fraction == 0.5 {
		exponent--
	}
	return exponent
}

// maxExemplar is the limit of OpenMetrics for the characters of the labels of an exemplar.
const maxExemplar = 128

func (d *distribution) exemplify(e *Exemplar, limit int) {
	octave := Octave(e.Value)
	place := slices.IndexFunc(d.exemplars, func(x exemplar) bool { return x.octave == octave })
	if place < 0 && len(d.exemplars) < limit {
		d.exemplars = append(d.exemplars, exemplar{time: e.Time})
		place = len(d.exemplars) - 1
	}
	if place < 0 {
		place = 0
		for i := range d.exemplars {
			if d.exemplars[i].time.Before(d.exemplars[place].time) {
				place = i
			}
		}
	}
	x := &d.exemplars[place]
	if e.Time.Before(x.time) {
		return
	}
	x.octave, x.value, x.time = octave, e.Value, e.Time
	x.names, x.text, x.ends = x.names[:0], x.text[:0], x.ends[:0]
	left := maxExemplar
	for _, l := range e.Labels {
		if size := utf8.RuneCountInString(l.Name) + utf8.RuneCountInString(l.Value); ValidLabel(l.Name) && l.Value != "" && size <= left {
			left -= size
			x.names = append(x.names, l.Name)
			x.text = appendValid(x.text, l.Value)
			x.ends = append(x.ends, len(x.text))
		}
	}
}

func (x *exemplar) export() Exemplar {
	e := Exemplar{Value: x.value, Time: x.time, Labels: make([]Label, len(x.names))}
	begin := 0
	for i, name := range x.names {
		e.Labels[i] = Label{name, string(x.text[begin:x.ends[i]])}
		begin = x.ends[i]
	}
	return e
}
