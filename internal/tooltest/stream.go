package tooltest

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// Exported is a histogram of a run whose output is exported.
type Exported struct {
	Key         map[string]string // columns as text
	Exponential histogram.Exponential
	Exemplars   []histogram.Exemplar
	Stats       histogram.Stats
}

// ExportedRun is the output of such a run.
type ExportedRun struct {
	Histograms []Exported
	Rows       []map[string]any // columns, as column.Column.Any
	Summary    output.Summary
}

// Sum sums a column of all rows.
func (r *ExportedRun) Sum(column string) (sum uint64) {
	for _, row := range r.Rows {
		n, _ := row[column].(int)
		sum += uint64(n)
	}
	return sum
}

// Export runs a tool whose output is exported, like JSON, and returns its histograms.
func Export(t testing.TB, tl *tool.Tool, args []string, load func()) *ExportedRun {
	t.Helper()
	run, err := TryExport(t, tl, args, load)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TryExport is Export that returns the error of the tool.
func TryExport(t testing.TB, tl *tool.Tool, args []string, load func()) (*ExportedRun, error) {
	t.Helper()
	return export(t, tl, args, 1, func(*tool.Stream) { load() })
}

// ExportSampled is Export of a run that counts one of n events. load can call sample to change n.
func ExportSampled(t testing.TB, tl *tool.Tool, args []string, n uint32, load func(sample func(n uint32))) *ExportedRun {
	t.Helper()
	run, err := export(t, tl, args, n, func(s *tool.Stream) {
		load(func(n uint32) {
			if err := s.Sample(n); err != nil || !s.CanSample() {
				t.Errorf("sample 1 of %d events: %v, possible: %v", n, err, s.CanSample())
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// CheckSampled compares the number of events, of which one of n was counted, with the number of those that
// happened. The estimate is n times a binomial number with the variance all (n-1)/n^2; it is within six standard
// deviations, but once in 500 million runs. Of all events, up to hidden may be missing.
func CheckSampled(t testing.TB, what string, got, all, hidden uint64, n uint32) {
	t.Helper()
	off := 6 * math.Sqrt(float64(all)*float64(n-1))
	t.Logf("%s: %d by 1 of %d, want %d +- %.0f, of which %d may be missing", what, got, n, all, off, hidden)
	if got%uint64(n) != 0 {
		t.Errorf("%s: %d is no multiple of %d", what, got, n)
	}
	if float64(got) > float64(all)+off || float64(got) < float64(all)-float64(hidden)-off {
		t.Errorf("%s: %d by 1 of %d, want %d +- %.0f, of which %d may be missing", what, got, n, all, off, hidden)
	}
}

// export runs a stream that counts one of n events. It calls load when all hooks are attached, and then ends
// the run.
func export(t testing.TB, tl *tool.Tool, args []string, n uint32, load func(*tool.Stream)) (*ExportedRun, error) {
	t.Helper()
	Root(t)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	var stderr bytes.Buffer
	s := tool.Stream{Tool: tl, Args: args, ErrOut: &stderr}
	if err := s.Sample(n); err != nil {
		return nil, err
	}
	sink := &exportSink{ready: during(func() { load(&s) }, cancel)}
	s.Sink = sink
	if err := s.Run(ctx); err != nil {
		return nil, fmt.Errorf("%s %q: %w: %s", tl.Name, args, err, &stderr)
	}
	sink.done.Wait()
	return &sink.run, nil
}

// exportSink keeps histograms. It calls ready in another goroutine, so that the tool does not wait.
type exportSink struct {
	ready func()
	done  sync.WaitGroup
	run   ExportedRun
}

func (s *exportSink) Profile(*flame.Profile) error         { return nil }
func (s *exportSink) Lost(output.Lost) error               { return nil }
func (s *exportSink) Ready(output.Ready) error             { s.done.Go(s.ready); return nil }
func (s *exportSink) Summary(summary output.Summary) error { s.run.Summary = summary; return nil }

func (s *exportSink) Row(_ string, cols []column.Column) error {
	row := map[string]any{}
	for i := range cols {
		row[cols[i].Key] = cols[i].Any()
	}
	s.run.Rows = append(s.run.Rows, row)
	return nil
}

func (s *exportSink) Histogram(_ value.Time, key []column.Column, h *histogram.Histogram) error {
	to := Exported{Key: map[string]string{}, Exponential: h.Exponential(), Exemplars: h.Exemplars(), Stats: h.Stats()}
	for i := range key {
		to.Key[key[i].Key] = string(key[i].AppendText(nil))
	}
	s.run.Histograms = append(s.run.Histograms, to)
	return nil
}

// CheckBuckets compares the buckets with the exact count, sum, minimum and maximum, and exemplars with
// buckets: each has one. Histograms of values that belong to no task have none.
func (h *Exported) CheckBuckets(t testing.TB) {
	t.Helper()
	e := &h.Exponential
	n, low, high := e.Zero, float64(0), float64(0) // bounds of the sum
	for i, count := range e.Buckets {
		n += count
		low += float64(count) * math.Exp2(float64(i-1)/8)
		high += float64(count) * math.Exp2(float64(i)/8)
	}
	if n != e.Count || e.Count != h.Stats.Count || e.Schema != 3 || e.Sum < low*(1-1e-9) || e.Sum > high*(1+1e-9) {
		t.Errorf("%v: %d values in buckets, want %d; sum %v, want %v to %v", h.Key, n, e.Count, e.Sum, low, high)
	}
	slots := len(e.Buckets)
	if e.Zero > 0 {
		slots++
	}
	if n := len(h.Exemplars); n != 0 && n != slots {
		t.Errorf("%v: %d exemplars, want %d", h.Key, n, slots)
	}
	for _, x := range h.Exemplars {
		isIn := x.Value <= math.Exp2(float64(x.Index)/8) && x.Value > math.Exp2(float64(x.Index-1)/8) && e.Buckets[x.Index] > 0
		if isZero := x.Value == 0 && e.Zero > 0; x.IsZero != isZero || !x.IsZero && !isIn || x.TID == 0 {
			t.Errorf("%v: exemplar %+v of buckets %v", h.Key, x, e.Buckets)
		}
	}
}

// CheckTask checks that there are exemplars, all of this process, with IDs in the initial PID namespace.
func (h *Exported) CheckTask(t testing.TB, pid int) {
	t.Helper()
	pidns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	isInitial := pidns == "pid:[4026531836]" // PROC_PID_INIT_INO
	if len(h.Exemplars) == 0 {
		t.Errorf("%v: no exemplars", h.Key)
	}
	for _, x := range h.Exemplars {
		age := time.Since(time.Unix(0, int64(x.Time)))
		if isInitial && int(x.PID) != pid || x.Comm == (value.Comm{}) || x.CgroupID == 0 || age < -time.Second || age > time.Hour {
			t.Errorf("%v: exemplar %+v, want one of process %d", h.Key, x, pid)
		}
	}
}
