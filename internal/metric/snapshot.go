package metric

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Snapshot is the state of one metric.
type Snapshot struct {
	Kind   Kind
	Name   []string
	Unit   Unit
	Help   string
	Whole  bool // the values are whole numbers
	Series []Series
}

// Series is the state of one series. It shares no memory with the store.
type Series struct {
	Labels   []Label // sorted by name; shared, not to be changed
	Overflow bool    // for all series beyond the limit; has no labels
	Created  time.Time
	// Value is the value of counters and gauges.
	Value float64
	// Whole is the value of counters with Snapshot.Whole.
	Whole uint64
	// Histogram is set for histograms.
	Histogram *Distribution
}

// Distribution is the state of a series of a histogram. Count is the sum of Zero and all buckets.
type Distribution struct {
	Schema      int
	Count, Zero uint64
	Sum         float64
	Buckets     []Bucket   // by index
	Exemplars   []Exemplar // by value
}

// Gather returns the metrics that have series, sorted by name, each with its series sorted by
// labels, and these metrics about the store: the series of each metric, the updates of series
// beyond the limit, and how often buckets of histograms were joined because there were too many. It
// deletes expired series, so it should be called now and then even if nobody reads the metrics.
func (s *Store) Gather() []Snapshot {
	now := s.options.Now()
	s.mutex.Lock()
	names := slices.Sorted(maps.Keys(s.metrics))
	families := make([]*family, len(names))
	for i, name := range names {
		families[i] = s.metrics[name]
	}
	s.mutex.Unlock()

	own := newOwn()
	all := make([]Snapshot, 0, len(families)+len(own.all))
	for i, f := range families {
		if snapshot := f.gather(now, names[i], own); len(snapshot.Series) > 0 {
			all = append(all, snapshot)
		}
	}
	for _, snapshot := range own.all {
		if len(snapshot.Series) > 0 {
			all = append(all, *snapshot)
		}
	}
	return all
}

// own has the metrics about the store.
type own struct {
	series, overflowed, downscaled Snapshot
	all                            []*Snapshot
}

func newOwn() *own {
	o := &own{
		series: Snapshot{
			Kind: KindGauge, Name: []string{"metric", "series"}, Unit: "{series}",
			Help: "Series of each metric that are held in memory, including expired ones that are not deleted yet.",
		},
		overflowed: Snapshot{
			Kind: KindCounter, Name: []string{"metric", "overflow_updates"}, Unit: "{update}", Whole: true,
			Help: "Updates of series beyond the limit of series of a metric. " +
				"Counters and histograms count them in one series for all; gauges leave them out.",
		},
		downscaled: Snapshot{
			Kind: KindCounter, Name: []string{"metric", "downscaled_series"}, Unit: "{series}", Whole: true,
			Help: "Times that buckets of a histogram series were joined because there were too many.",
		},
	}
	o.all = []*Snapshot{&o.downscaled, &o.overflowed, &o.series}
	return o
}

func (o *own) add(to *Snapshot, name string, since time.Time, value uint64) {
	to.Series = append(to.Series, Series{Labels: []Label{{"metric", name}}, Created: since, Whole: value, Value: float64(value)})
}

// gather copies the state of a metric.
func (f *family) gather(now time.Time, name string, own *own) Snapshot {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.sweep(now)
	out := Snapshot{Kind: f.kind, Name: f.name, Unit: f.unit, Help: f.help, Whole: f.kind == KindCounter && f.divisor == 1 && f.unit != Seconds}
	out.Series = make([]Series, 0, len(f.series)+1)
	for _, s := range f.series {
		if f.permanent || now.Sub(s.changed) <= f.options.TTL {
			out.Series = append(out.Series, f.export(s))
		}
	}
	slices.SortFunc(out.Series, func(a, b Series) int { return compareLabels(a.Labels, b.Labels) })
	if o := f.overflow; o != nil && f.kind != KindGauge && (f.permanent || now.Sub(o.changed) <= f.options.TTL) {
		s := f.export(o)
		s.Overflow = true
		out.Series = append(out.Series, s)
	}
	own.add(&own.series, name, f.born, uint64(len(f.series)))
	own.add(&own.overflowed, name, f.born, f.overflowed)
	if f.kind == KindHistogram {
		own.add(&own.downscaled, name, f.born, f.downscaled)
	}
	return out
}

func compareLabels(a, b []Label) int {
	return slices.CompareFunc(a, b, func(a, b Label) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
	})
}

func (f *family) export(s *series) Series {
	out := Series{Labels: s.labels, Created: s.created}
	switch f.kind {
	case KindGauge:
		out.Value = s.value
	case KindCounter:
		out.Value = float64(s.whole)/float64(f.divisor) + s.value
		out.Whole = saturated(s.whole, uint64(s.value))
	case KindHistogram:
		h := s.histogram
		out.Histogram = &Distribution{
			Schema: h.schema, Count: h.count, Zero: h.zero, Sum: h.sum, Buckets: slices.Clone(h.buckets),
		}
		for i := range h.exemplars {
			out.Histogram.Exemplars = append(out.Histogram.Exemplars, h.exemplars[i].export())
		}
		slices.SortFunc(out.Histogram.Exemplars, func(a, b Exemplar) int { return cmp.Compare(a.Value, b.Value) })
	}
	return out
}
