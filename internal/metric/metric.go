// Package metric stores the series of metrics that an agent exports: counters, gauges and
// histograms, each with labels. Tools add what an interval brought; exporters take snapshots.
//
// What a snapshot states holds for every consumer:
//
//   - The counters and bucket counts of a series never decrease.
//   - A series that has not changed for some time (Options.TTL) is left out. It is kept for another
//     while (Options.Absence), and if it changes in that time, it continues with its old counts. Only
//     then it is deleted, so whoever scrapes more often than that has seen that it was absent before
//     it starts at 0 again, with a new time of creation.
//   - A metric has at most Options.MaxSeries series. What belongs to further ones is counted in one
//     series for all of them (Series.Overflow), so sums over all series remain right.
//
// Values of labels are untrusted. What is not valid UTF-8 is replaced by U+FFFD.
package metric

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Kind is the kind of a metric.
type Kind int

// The kinds of metrics.
const (
	KindCounter Kind = iota
	KindGauge
	KindHistogram
)

func (k Kind) String() string {
	return [...]string{"counter", "gauge", "histogram"}[k]
}

// Unit is the unit of a metric, in the notation of UCUM: [Seconds], [Bytes], [One] or a word in
// braces, such as {event}.
type Unit string

// The units with a meaning for the names of metrics.
const (
	Seconds Unit = "s"
	Bytes   Unit = "By"
	One     Unit = "1" // a ratio
)

// Description describes a metric.
type Description struct {
	// Name has the parts of the name: mostly the tool and the column or "duration". Each part starts
	// with a letter and consists of lower-case letters, digits and underscores.
	Name []string
	Unit Unit
	Help string
	// Labels are the names of the labels, as in [ValidLabel]. A label with an empty value is left out.
	Labels []string
	// Divisor converts what is added to a counter to the unit, such as 1e9 for counts of nanoseconds.
	// 0 means 1. The sum is kept as a whole number, so nothing is lost by rounding.
	Divisor uint64
	// Permanent is set for metrics whose series do not expire.
	Permanent bool
}

// Label is a name and a value.
type Label struct {
	Name, Value string
}

// Options are the limits of a store. Fields that are 0 have the default.
type Options struct {
	TTL          time.Duration    // after the last change, series are left out; default 5 min
	Absence      time.Duration    // how long series are left out before they are deleted; default 2 min
	MaxSeries    int              // per metric, including the one for all others; default 2000
	MaxBuckets   int              // non-empty buckets per series; default 160
	MaxExemplars int              // per series; default 10
	Now          func() time.Time // default time.Now
}

// Store is a set of metrics. It is safe for concurrent use.
type Store struct {
	options Options
	mutex   sync.Mutex
	metrics map[string]*family
}

// NewStore returns an empty store.
func NewStore(o Options) *Store {
	defaults(&o.TTL, 5*time.Minute)
	defaults(&o.Absence, 2*time.Minute)
	defaults(&o.MaxSeries, 2000)
	defaults(&o.MaxBuckets, 160)
	defaults(&o.MaxExemplars, 10)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{options: o, metrics: map[string]*family{}}
}

func defaults[T int | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

// ValidLabel reports whether a label can have this name: a lower-case letter, then lower-case
// letters, digits and underscores. The names le and quantile have another meaning.
func ValidLabel(name string) bool {
	return validPart(name) && name != "le" && name != "quantile"
}

func validPart(s string) bool {
	for i, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || i > 0 && (c >= '0' && c <= '9' || c == '_')) {
			return false
		}
	}
	return s != ""
}

func (d *Description) check() error {
	for _, part := range d.Name {
		if !validPart(part) {
			return fmt.Errorf("metric %q: invalid part of a name: %q", d.Name, part)
		}
	}
	for i, name := range d.Labels {
		if !ValidLabel(name) || slices.Contains(d.Labels[:i], name) {
			return fmt.Errorf("metric %q: invalid or repeated name of a label: %q", d.Name, name)
		}
	}
	switch {
	case len(d.Name) == 0:
		return fmt.Errorf("metric has no name")
	case d.Help == "":
		return fmt.Errorf("metric %q has no help", d.Name)
	}
	return nil
}

// view returns the metric of a name, and how one caller's labels are ordered. Callers with
// different labels can share a metric.
func (s *Store) view(kind Kind, d Description) (view, error) {
	if err := d.check(); err != nil {
		return view{}, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	name := strings.Join(d.Name, "_")
	f := s.metrics[name]
	if f == nil {
		f = &family{
			options: &s.options, kind: kind, name: slices.Clone(d.Name), unit: d.Unit, help: strings.ToValidUTF8(d.Help, "\uFFFD"),
			divisor: max(d.Divisor, 1), permanent: d.Permanent,
			born: s.options.Now(), series: map[string]*series{},
		}
		s.metrics[name] = f
	}
	if f.kind != kind || f.unit != d.Unit || f.divisor != max(d.Divisor, 1) || !slices.Equal(f.name, d.Name) {
		return view{}, fmt.Errorf("metric %q exists as %s in %q", d.Name, f.kind, f.unit)
	}
	v := view{family: f}
	for i := range d.Labels {
		v.order = append(v.order, i)
		v.names = append(v.names, d.Labels[i])
	}
	slices.SortFunc(v.order, func(a, b int) int { return strings.Compare(d.Labels[a], d.Labels[b]) })
	return v, nil
}

// Counter is a metric that only grows.
type Counter struct{ view view }

// Counter returns the counter with this description, which may exist already. It fails if the
// description is invalid, or if the metric exists with another kind or unit.
func (s *Store) Counter(d Description) (*Counter, error) {
	v, err := s.view(KindCounter, d)
	return &Counter{v}, err
}

// Add adds delta to the series with these values of the labels. The values are not retained. Adding
// 0 creates the series. A counter stops at the largest number. Add panics if there are not as many
// values as labels.
func (c *Counter) Add(delta uint64, values ...string) {
	f := c.view.family
	f.mutex.Lock()
	defer f.mutex.Unlock()
	s := c.view.find(values, delta != 0)
	if s.whole += delta; s.whole < delta {
		s.whole = math.MaxUint64
	}
}

// AddFloat is like Add, for a number in the unit of the metric. A delta that is negative or not a
// number is ignored.
func (c *Counter) AddFloat(delta float64, values ...string) {
	f := c.view.family
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if s := c.view.find(values, delta > 0); delta > 0 && !math.IsInf(delta, 0) {
		s.value += delta
	}
}

// Gauge is a metric with a current value.
type Gauge struct{ view view }

// Gauge is like [Store.Counter].
func (s *Store) Gauge(d Description) (*Gauge, error) {
	v, err := s.view(KindGauge, d)
	return &Gauge{v}, err
}

// Set sets the value of the series with these values of the labels. It counts as a change even if
// the value is the same. Series beyond the limit have no value: they are left out and counted in
// the metric "overflow".
func (g *Gauge) Set(value float64, values ...string) {
	f := g.view.family
	f.mutex.Lock()
	defer f.mutex.Unlock()
	g.view.find(values, true).value = value
}

// Remove deletes the series with these values of the labels, if there is one: what it described does not
// exist any more.
func (g *Gauge) Remove(values ...string) {
	f := g.view.family
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if g.view.lookup(values) != nil {
		delete(f.series, string(f.key))
	}
}

// view is a metric with the labels of one caller.
type view struct {
	family *family
	names  []string
	order  []int // indexes of names, sorted by name
}

// family is one metric.
type family struct {
	options   *Options
	kind      Kind
	name      []string
	unit      Unit
	help      string
	divisor   uint64
	permanent bool
	born      time.Time

	mutex      sync.Mutex
	series     map[string]*series // by key, see view.key
	overflow   *series
	peak       int // largest number of series since the map was created
	swept      time.Time
	overflowed uint64 // updates of the overflow series
	downscaled uint64 // updates that joined buckets
	key        []byte // scratch
}

// series is one series of a metric.
type series struct {
	labels           []Label // sorted by name
	created, changed time.Time
	whole            uint64  // counters: a multiple of 1/divisor
	value            float64 // counters: in addition to whole; gauges: the value
	histogram        *distribution
}

// lookup returns the series with these values of the labels or nil, and sets family.key.
func (v *view) lookup(values []string) *series {
	f := v.family
	if len(values) != len(v.names) {
		panic(fmt.Sprintf("metric %q: %d values for %d labels", f.name, len(values), len(v.names)))
	}
	f.key = f.key[:0]
	for _, i := range v.order {
		if value := values[i]; value != "" {
			f.key = append(f.key, v.names[i]...)
			f.key = append(f.key, 0)
			f.key = appendValid(f.key, value)
			f.key = append(f.key, 0xff) // is in no valid UTF-8
		}
	}
	return f.series[string(f.key)]
}

// find returns the series with these values of the labels, and creates it if there is none. change
// tells whether its counts are about to change.
func (v *view) find(values []string, change bool) *series {
	f, now := v.family, v.family.options.Now()
	s := v.lookup(values)
	if s == nil {
		s = f.create(v, values, now)
	}
	if change {
		s.changed = now
		if s == f.overflow {
			f.overflowed++
		}
	}
	return s
}

// appendValid appends a string with U+FFFD instead of what is not valid UTF-8.
func appendValid(dst []byte, s string) []byte {
	if utf8.ValidString(s) {
		return append(dst, s...)
	}
	for _, r := range s {
		dst = utf8.AppendRune(dst, r)
	}
	return dst
}

// create creates the series of the current key, or returns the overflow series.
func (f *family) create(v *view, values []string, now time.Time) *series {
	if len(f.series) >= f.options.MaxSeries-1 && now.Sub(f.swept) >= time.Second {
		f.sweep(now)
	}
	if len(f.series) >= f.options.MaxSeries-1 {
		if f.overflow == nil {
			f.overflow = f.newSeries(now)
		}
		return f.overflow
	}
	s := f.newSeries(now)
	for _, i := range v.order {
		if values[i] != "" {
			s.labels = append(s.labels, Label{v.names[i], string(appendValid(nil, values[i]))})
		}
	}
	f.series[string(f.key)] = s
	f.peak = max(f.peak, len(f.series))
	return s
}

func (f *family) newSeries(now time.Time) *series {
	s := &series{created: now, changed: now}
	if f.kind == KindHistogram {
		s.histogram = &distribution{}
	}
	return s
}

// sweep deletes the series that have been left out for long enough.
func (f *family) sweep(now time.Time) {
	f.swept = now
	if f.permanent {
		return
	}
	dead := func(s *series) bool { return now.Sub(s.changed) > f.options.TTL+f.options.Absence }
	for key, s := range f.series {
		if dead(s) {
			delete(f.series, key)
		}
	}
	if f.overflow != nil && dead(f.overflow) {
		f.overflow = nil
	}
	if len(f.series) < f.peak/4 { // a map keeps its memory when entries are deleted
		smaller := make(map[string]*series, len(f.series))
		for key, s := range f.series {
			smaller[key] = s
		}
		f.series, f.peak = smaller, len(smaller)
	}
}
