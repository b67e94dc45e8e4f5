package metric

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/histogram"
)

func newHistogram(t testing.TB, s *Store, labels ...string) *Histogram {
	t.Helper()
	h, err := s.Histogram(Description{Name: []string{"tool", "duration"}, Unit: Seconds, Help: "Help.", Labels: labels})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func only(t testing.TB, s *Store) *Distribution {
	t.Helper()
	m := find(t, s, "tool_duration")
	if len(m.Series) != 1 {
		t.Fatalf("%d series", len(m.Series))
	}
	return m.Series[0].Histogram
}

// count counts values in the buckets of a schema by the definition of the buckets.
func count(schema int, values []float64) *histogram.Exponential {
	e := &histogram.Exponential{Schema: schema, Buckets: map[int]uint64{}}
	for _, v := range values {
		e.Count++
		e.Sum += v
		if v == 0 {
			e.Zero++
			continue
		}
		e.Buckets[indexOf(schema, v)]++
	}
	return e
}

func bound(schema, i int) float64 {
	return math.Exp2(float64(i) / math.Exp2(float64(schema)))
}

func indexOf(schema int, v float64) int {
	i := int(math.Ceil(math.Log2(v) * math.Exp2(float64(schema))))
	for bound(schema, i-1) >= v {
		i--
	}
	for bound(schema, i) < v {
		i++
	}
	return i
}

func checkCounts(t *testing.T, d *Distribution, all []float64) {
	t.Helper()
	want := count(d.Schema, all)
	got := map[int]uint64{}
	sum := d.Zero
	for i, b := range d.Buckets {
		got[b.Index] = b.Count
		sum += b.Count
		if b.Count == 0 || i > 0 && d.Buckets[i-1].Index >= b.Index {
			t.Errorf("bucket %+v after %+v", b, d.Buckets[max(i-1, 0)])
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want.Buckets) || d.Zero != want.Zero || d.Count != want.Count || sum != d.Count {
		t.Errorf("schema %d: %v, zero %d, count %d, want %v, zero %d, count %d", d.Schema, got, d.Zero, d.Count, want.Buckets, want.Zero, want.Count)
	}
	if math.Abs(d.Sum-want.Sum) > want.Sum*1e-9 {
		t.Errorf("sum %v, want %v", d.Sum, want.Sum)
	}
}

// TestHistogramCounts adds deltas of different schemas and compares the result with the values
// counted in the buckets that the series has in the end.
func TestHistogramCounts(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := NewStore(Options{MaxBuckets: 5 + r.IntN(200)})
		h := newHistogram(t, s)
		schema := r.IntN(9)
		var all []float64
		for range 1 + r.IntN(10) {
			if r.IntN(2) == 0 {
				schema = r.IntN(9)
			}
			var values []float64
			for range r.IntN(200) {
				switch r.IntN(10) {
				case 0:
					values = append(values, 0)
				case 1: // at a bound
					values = append(values, math.Ldexp(1, r.IntN(40)-30))
				default:
					values = append(values, math.Exp2(r.Float64()*40-30))
				}
			}
			all = append(all, values...)
			h.Add(count(schema, values))
		}
		if len(all) == 0 {
			continue
		}
		d := only(t, s)
		checkCounts(t, d, all)
		if len(d.Buckets) > 205 {
			t.Errorf("%d buckets", len(d.Buckets))
		}
	}
}

func TestDownscaleAtTheLimit(t *testing.T) {
	s := NewStore(Options{})
	h := newHistogram(t, s)
	delta := &histogram.Exponential{Schema: 3, Buckets: map[int]uint64{}}
	for i := range 160 {
		delta.Buckets[i-80] = 1
	}
	h.Add(delta)
	if d := only(t, s); d.Schema != 3 || len(d.Buckets) != 160 {
		t.Errorf("schema %d with %d buckets, want 3 and 160", d.Schema, len(d.Buckets))
	}
	h.Add(&histogram.Exponential{Schema: 3, Buckets: map[int]uint64{200: 1}})
	d := only(t, s)
	if d.Schema != 2 || len(d.Buckets) != 82 || d.Count != 161 {
		t.Errorf("schema %d with %d buckets of %d values", d.Schema, len(d.Buckets), d.Count)
	}
	h.Add(&histogram.Exponential{Schema: 3, Buckets: map[int]uint64{1: 1}})
	want(t, "schema afterwards", only(t, s).Schema, 2)
	want(t, "downscaled", values(find(t, s, "metric_downscaled_series")), map[string]float64{"[{metric tool_duration}]": 1})
}

func TestAllValuesFitInTheSmallestSchema(t *testing.T) {
	s := NewStore(Options{MaxBuckets: 1})
	h := newHistogram(t, s)
	h.Add(&histogram.Exponential{Schema: 8, Buckets: map[int]uint64{-1074 << 8: 1, 1024 << 8: 1, 0: 1}})
	if d := only(t, s); d.Schema != MinSchema || d.Count != 3 {
		t.Errorf("%+v", d)
	}
}

// TestCountIsThatOfTheBuckets checks that a wrong Count is not exported: consumers refuse it.
func TestCountIsThatOfTheBuckets(t *testing.T) {
	s := NewStore(Options{})
	h := newHistogram(t, s)
	h.Add(&histogram.Exponential{Schema: 3, Count: 100, Zero: 1, Sum: math.NaN(), Buckets: map[int]uint64{1: 2, 7: 0}})
	h.Add(&histogram.Exponential{Schema: 3, Sum: -3})
	d := only(t, s)
	if d.Count != 3 || d.Sum != 0 || len(d.Buckets) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestEmptyHistogram(t *testing.T) {
	s := NewStore(Options{})
	newHistogram(t, s).Add(&histogram.Exponential{Schema: 3})
	if d := only(t, s); d.Schema != 3 || d.Count != 0 || len(d.Buckets) != 0 {
		t.Errorf("%+v", d)
	}
}

func TestExemplars(t *testing.T) {
	s := NewStore(Options{MaxExemplars: 3})
	h := newHistogram(t, s, "a")
	at := func(n int) time.Time { return time.Unix(int64(n), 0) }
	h.Exemplar(Exemplar{1, at(1), nil}, "x") // there is no such series yet
	h.Add(&histogram.Exponential{Schema: 3, Buckets: map[int]uint64{1: 1}}, "x")
	h.Exemplar(Exemplar{1, at(10), []Label{{"pid", "1"}, {"comm", "\xffa"}, {"container", ""}}}, "x")
	h.Exemplar(Exemplar{1.5, at(9), []Label{{"pid", "2"}}}, "x")
	h.Exemplar(Exemplar{2, at(11), []Label{{"pid", "3"}}}, "x")   // the same bucket as 1.5
	h.Exemplar(Exemplar{1.9, at(10), []Label{{"pid", "4"}}}, "x") // older than that
	h.Exemplar(Exemplar{1e-6, at(12), []Label{{"pid", strings.Repeat("1", 120)}, {"comm", "123456"}, {"x", "12345"}}}, "x")
	for _, v := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		h.Exemplar(Exemplar{v, at(20), nil}, "x")
	}
	got := only(t, s).Exemplars
	want(t, "exemplars", got, []Exemplar{
		{1e-6, at(12), []Label{{"pid", strings.Repeat("1", 120)}}},
		{1, at(10), []Label{{"pid", "1"}, {"comm", "\uFFFDa"}}},
		{2, at(11), []Label{{"pid", "3"}}},
	})
	// The oldest one is replaced.
	h.Exemplar(Exemplar{1000, at(13), []Label{{"pid", "5"}}}, "x")
	got = only(t, s).Exemplars
	want(t, "values", []float64{got[0].Value, got[1].Value, got[2].Value}, []float64{1e-6, 2, 1000})
	h.Exemplar(Exemplar{1e6, at(1), []Label{{"pid", "6"}}}, "x")
	want(t, "older than all", only(t, s).Exemplars, got)
}

func TestOctave(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		want int
	}{{1, 0}, {math.Nextafter(1, 2), 1}, {2, 1}, {0.5, -1}, {0.6, 0}, {math.Ldexp(1, -20), -20}, {64, 6}, {64.1, 7}} {
		want(t, fmt.Sprint(tt.v), Octave(tt.v), tt.want)
	}
}
