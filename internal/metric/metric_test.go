package metric

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/corescope/corescope/internal/histogram"
)

// clock is a clock for tests.
type clock struct{ now time.Time }

func newClock() *clock { return &clock{time.Unix(1_700_000_000, 0)} }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func counter(t testing.TB, s *Store, d Description) *Counter {
	t.Helper()
	c, err := s.Counter(d)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func describe(name string, labels ...string) Description {
	return Description{Name: []string{"tool", name}, Unit: "{event}", Help: "Help.", Labels: labels}
}

func find(t testing.TB, s *Store, name string) Snapshot {
	t.Helper()
	for _, m := range s.Gather() {
		if strings.Join(m.Name, "_") == name {
			return m
		}
	}
	return Snapshot{}
}

// values returns the values of the series by their labels.
func values(m Snapshot) map[string]float64 {
	out := map[string]float64{}
	for _, s := range m.Series {
		key := fmt.Sprint(s.Labels)
		if s.Overflow {
			key = "overflow"
		}
		out[key] = s.Value
		if s.Histogram != nil {
			out[key] = float64(s.Histogram.Count)
		}
	}
	return out
}

func want(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestCounter(t *testing.T) {
	s := NewStore(Options{})
	c := counter(t, s, describe("calls", "b", "a"))
	c.Add(0, "x", "y")
	c.Add(3, "x", "y")
	c.Add(4, "x", "y")
	c.Add(1, "x", "")
	c.Add(2, "", "")
	m := find(t, s, "tool_calls")
	want(t, "values", values(m), map[string]float64{"[{a y} {b x}]": 7, "[{b x}]": 1, "[]": 2})
	if !m.Whole || m.Series[1].Whole != 7 && m.Series[2].Whole != 7 && m.Series[0].Whole != 7 {
		t.Errorf("not a whole number: %+v", m)
	}
	// Another caller with other labels of the same metric.
	counter(t, s, describe("calls", "a")).Add(5, "y")
	counter(t, s, describe("calls", "a", "b")).Add(5, "y", "x")
	want(t, "values", values(find(t, s, "tool_calls")), map[string]float64{"[{a y} {b x}]": 12, "[{b x}]": 1, "[]": 2, "[{a y}]": 5})
}

func TestCounterOfSeconds(t *testing.T) {
	s := NewStore(Options{})
	c := counter(t, s, Description{Name: []string{"cpu"}, Unit: Seconds, Help: "Help.", Divisor: 1e9})
	for range 1000 {
		c.Add(100_000_000)
	}
	c.AddFloat(0.5)
	for _, delta := range []float64{-1, math.NaN(), math.Inf(1), math.Inf(-1), 0} {
		c.AddFloat(delta)
	}
	m := find(t, s, "cpu")
	want(t, "values", values(m), map[string]float64{"[]": 100.5})
	want(t, "whole", m.Whole, false)
}

func TestCounterStopsAtLargestNumber(t *testing.T) {
	s := NewStore(Options{})
	c := counter(t, s, describe("calls"))
	c.Add(math.MaxUint64 - 1)
	c.Add(5)
	c.Add(5)
	want(t, "value", find(t, s, "tool_calls").Series[0].Whole, uint64(math.MaxUint64))
}

func TestGauge(t *testing.T) {
	s := NewStore(Options{MaxSeries: 3})
	g, err := s.Gauge(describe("size", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range []string{"x", "y", "z", "x", "w"} {
		g.Set(float64(i), v)
	}
	// There is no value for all series beyond the limit.
	want(t, "values", values(find(t, s, "tool_size")), map[string]float64{"[{a x}]": 3, "[{a y}]": 1})
	want(t, "overflow", values(find(t, s, "metric_overflow_updates")), map[string]float64{"[{metric tool_size}]": 2})
}

func TestInvalidDescriptions(t *testing.T) {
	s := NewStore(Options{})
	counter(t, s, describe("calls"))
	for _, d := range []Description{
		{},
		{Name: []string{"a"}},
		{Name: []string{"A"}, Help: "x"},
		{Name: []string{"a", ""}, Help: "x"},
		{Name: []string{"a-b"}, Help: "x"},
		{Name: []string{"1a"}, Help: "x"},
		{Name: []string{"a"}, Help: "x", Labels: []string{"le"}},
		{Name: []string{"a"}, Help: "x", Labels: []string{"_x"}},
		{Name: []string{"a"}, Help: "x", Labels: []string{"x", "x"}},
		{Name: []string{"a"}, Help: "x", Labels: []string{"otel.metric.overflow"}},
		{Name: []string{"tool_calls"}, Unit: "{event}", Help: "x"},
		{Name: []string{"tool", "calls"}, Unit: Bytes, Help: "x"},
		{Name: []string{"tool", "calls"}, Unit: "{event}", Divisor: 2, Help: "x"},
	} {
		if _, err := s.Counter(d); err == nil {
			t.Errorf("%+v was accepted", d)
		}
	}
	if _, err := s.Gauge(describe("calls")); err == nil {
		t.Error("a counter was accepted as gauge")
	}
}

func TestWrongNumberOfValuesPanics(t *testing.T) {
	c := counter(t, NewStore(Options{}), describe("calls", "a"))
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	c.Add(1, "x", "y")
}

func TestUntrustedValues(t *testing.T) {
	s := NewStore(Options{})
	c := counter(t, s, describe("calls", "a", "b"))
	c.Add(1, "x\xff\xfe", "\x00\n\"\\")
	c.Add(1, "x\uFFFD\uFFFD", "\x00\n\"\\")
	// The end of one value and the begin of the next one cannot be confused.
	c.Add(1, "p\x00b\x00q", "")
	c.Add(1, "p", "q")
	c.Add(1, "p\xffb\x00q", "")
	m := find(t, s, "tool_calls")
	if len(m.Series) != 4 {
		t.Errorf("%d series, want 4", len(m.Series))
	}
	for _, series := range m.Series {
		for _, l := range series.Labels {
			if !utf8.ValidString(l.Value) {
				t.Errorf("invalid UTF-8: %q", l.Value)
			}
		}
	}
}

// TestExpiry checks that a series is absent for some time before it starts at 0 again.
func TestExpiry(t *testing.T) {
	clock := newClock()
	s := NewStore(Options{TTL: 5 * time.Minute, Absence: 2 * time.Minute, Now: clock.Now})
	c := counter(t, s, describe("calls", "a"))
	begin := clock.now
	c.Add(10, "x")
	clock.advance(5 * time.Minute)
	c.Add(0, "x") // is no change
	want(t, "at the TTL", values(find(t, s, "tool_calls")), map[string]float64{"[{a x}]": 10})
	clock.advance(time.Second)
	want(t, "after the TTL", len(find(t, s, "tool_calls").Series), 0)
	c.Add(1, "x")
	m := find(t, s, "tool_calls")
	want(t, "back soon", values(m), map[string]float64{"[{a x}]": 11})
	want(t, "created", m.Series[0].Created, begin)
	clock.advance(7*time.Minute + time.Second)
	want(t, "after the absence", len(find(t, s, "tool_calls").Series), 0)
	c.Add(2, "x")
	m = find(t, s, "tool_calls")
	want(t, "back late", values(m), map[string]float64{"[{a x}]": 2})
	want(t, "created", m.Series[0].Created, clock.now)
}

func TestPermanent(t *testing.T) {
	clock := newClock()
	s := NewStore(Options{Now: clock.Now})
	d := describe("rows")
	d.Permanent = true
	counter(t, s, d).Add(0)
	clock.advance(24 * time.Hour)
	want(t, "values", values(find(t, s, "tool_rows")), map[string]float64{"[]": 0})
}

// TestNoCounterGoesBackwards lets series come and go at random, and several consumers read them at
// different intervals. For each of them a value only falls after the series was absent, and with a
// later time of creation. What is added is in the snapshots or was there when series expired.
func TestNoCounterGoesBackwards(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 0))
		clock := newClock()
		s := NewStore(Options{TTL: 5 * time.Minute, Absence: 2 * time.Minute, MaxSeries: 20, Now: clock.Now})
		c := counter(t, s, describe("calls", "a"))
		h, err := s.Histogram(describe("sizes", "a"))
		if err != nil {
			t.Fatal(err)
		}
		type seen struct {
			value   float64
			created time.Time
		}
		consumers := []struct {
			interval time.Duration
			next     time.Time
			last     map[string]seen
		}{{interval: 15 * time.Second}, {interval: 29 * time.Second}, {interval: 60 * time.Second}, {interval: 119 * time.Second}}
		resets := 0
		for range 20_000 {
			clock.advance(time.Duration(r.IntN(2000)) * time.Millisecond)
			// Values are in use for some time, then others.
			active := int(clock.now.Unix()/400) % 7
			label := fmt.Sprint(active*3 + r.IntN(9))
			c.Add(r.Uint64N(3), label)
			h.Add(&histogram.Exponential{Schema: r.IntN(6), Zero: r.Uint64N(2), Buckets: map[int]uint64{r.IntN(2000) - 1000: 1}}, label)
			for i := range consumers {
				consumer := &consumers[i]
				if clock.now.Before(consumer.next) {
					continue
				}
				consumer.next = clock.now.Add(consumer.interval)
				now := map[string]seen{}
				for _, name := range []string{"tool_calls", "tool_sizes"} {
					m := find(t, s, name)
					if len(m.Series) > 20 {
						t.Fatalf("%d series", len(m.Series))
					}
					for i, value := range m.Series {
						key := fmt.Sprint(name, value.Labels, value.Overflow)
						v := seen{value.Value, value.Created}
						if value.Histogram != nil {
							v.value = float64(value.Histogram.Count)
						}
						now[key] = v
						old, ok := consumer.last[key]
						if ok && (v.value < old.value || !v.created.Equal(old.created)) {
							t.Fatalf("seed %d, every %v: %s: %v, then %v (%d)", seed, consumer.interval, key, old, v, i)
						}
						if !ok && v.value < 5 {
							resets++
						}
					}
				}
				consumer.last = now
			}
		}
		if resets < 10 {
			t.Errorf("only %d series began", resets)
		}
	}
}

func TestOverflow(t *testing.T) {
	clock := newClock()
	s := NewStore(Options{MaxSeries: 10, Now: clock.Now})
	c := counter(t, s, describe("calls", "a"))
	for i := range 100 {
		c.Add(1, fmt.Sprint(i))
		c.Add(1, fmt.Sprint(i))
	}
	m := find(t, s, "tool_calls")
	sum := 0.0
	for _, v := range values(m) {
		sum += v
	}
	last := m.Series[len(m.Series)-1]
	if len(m.Series) != 10 || !last.Overflow || last.Labels != nil || last.Value != 182 || sum != 200 {
		t.Errorf("%d series, sum %v, last %+v", len(m.Series), sum, last)
	}
	want(t, "updates", values(find(t, s, "metric_overflow_updates")), map[string]float64{"[{metric tool_calls}]": 182})
	// When the series are deleted, others get a series of their own without waiting for a snapshot.
	clock.advance(time.Hour)
	c.Add(1, "200")
	want(t, "later", values(find(t, s, "tool_calls")), map[string]float64{"[{a 200}]": 1})
}

// TestMemory checks that memory is free again after short-lived series.
func TestMemory(t *testing.T) {
	clock := newClock()
	s := NewStore(Options{MaxSeries: 20_000, Now: clock.Now})
	c := counter(t, s, describe("calls", "container"))
	h, err := s.Histogram(describe("sizes", "container"))
	if err != nil {
		t.Fatal(err)
	}
	load := func(n int) {
		for i := range n {
			label := fmt.Sprintf("container-%d-%s", i, strings.Repeat("x", 50))
			c.Add(1, label)
			h.Add(&histogram.Exponential{Schema: 3, Buckets: map[int]uint64{1: 1, 5: 1, 9: 2}}, label)
			h.Exemplar(Exemplar{1, clock.now, []Label{{"pid", "1"}}}, label)
		}
	}
	inUse := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	load(10)
	before := inUse()
	load(10_000)
	during := inUse()
	clock.advance(8 * time.Minute)
	s.Gather()
	after := inUse()
	t.Logf("10,000 series: %d bytes; deleted: %d bytes", during-before, after-before)
	if during-before < 1<<20 || after-before > 64<<10 {
		t.Errorf("10,000 series take %d bytes, and %d when they are deleted", during-before, after-before)
	}
	runtime.KeepAlive(s)
}

func TestConcurrentUse(t *testing.T) {
	s := NewStore(Options{MaxSeries: 50})
	var group, readers sync.WaitGroup
	done := make(chan bool)
	for worker := range 4 {
		group.Go(func() {
			c := counter(t, s, describe("calls", "a"))
			h, err := s.Histogram(describe("sizes", "a"))
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 5000 {
				label := fmt.Sprint(i % (20 * (worker + 1)))
				c.Add(1, label)
				h.Add(&histogram.Exponential{Schema: 3, Zero: 1}, label)
				h.Exemplar(Exemplar{float64(i), time.Unix(int64(i), 0), []Label{{"pid", label}}}, label)
			}
		})
	}
	readers.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				s.Gather()
			}
		}
	})
	group.Wait()
	close(done)
	readers.Wait()
	for _, name := range []string{"tool_calls", "tool_sizes"} {
		sum := 0.0
		for _, v := range values(find(t, s, name)) {
			sum += v
		}
		want(t, name, sum, 20_000.0)
	}
}

// steady returns a store with 1,000 series, and a function that updates one of them.
func steady(t testing.TB) (update func(i int)) {
	s := NewStore(Options{})
	c := counter(t, s, describe("calls", "comm", "container"))
	h, err := s.Histogram(Description{Name: []string{"tool", "duration"}, Unit: Seconds, Help: "Help.", Labels: []string{"comm", "container"}})
	if err != nil {
		t.Fatal(err)
	}
	labels := make([][]string, 500)
	for i := range labels {
		labels[i] = []string{fmt.Sprint("comm-", i), fmt.Sprint("container-", i)}
	}
	deltas := make([]*histogram.Exponential, 50)
	for i := range deltas {
		deltas[i] = &histogram.Exponential{Schema: 3, Count: 1, Sum: 0.001, Buckets: map[int]uint64{i - 100: 1}}
	}
	exemplar := Exemplar{0.001, time.Now(), []Label{{"pid", "12345"}, {"comm", "nginx"}}}
	return func(i int) {
		values := labels[i%len(labels)]
		if i%2 == 0 {
			c.Add(1, values...)
			return
		}
		h.Add(deltas[i/len(labels)%len(deltas)], values...)
		h.Exemplar(exemplar, values...)
	}
}

func TestUpdatesDoNotAllocate(t *testing.T) {
	update := steady(t)
	for i := range 100_000 {
		update(i)
	}
	i := 0
	if n := testing.AllocsPerRun(10_000, func() { update(i); i++ }); n != 0 {
		t.Errorf("%v allocations per update", n)
	}
}

func BenchmarkUpdate(b *testing.B) {
	update := steady(b)
	for i := range 100_000 {
		update(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		update(i)
	}
}

// TestRemove removes one of two series.
func TestRemove(t *testing.T) {
	s := NewStore(Options{})
	g, err := s.Gauge(Description{Name: []string{"tool", "up"}, Help: "Help.", Labels: []string{"tool"}, Permanent: true})
	if err != nil {
		t.Fatal(err)
	}
	g.Set(1, "a")
	g.Set(1, "b")
	g.Remove("a")
	g.Remove("c")
	for _, m := range s.Gather() {
		if m.Name[0] == "tool" && (len(m.Series) != 1 || m.Series[0].Labels[0].Value != "b") {
			t.Errorf("%+v", m.Series)
		}
	}
}
