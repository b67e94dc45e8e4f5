package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// result is one figure: medians over the rounds, and the median of the rounds' ratios.
type result struct {
	Tool   string  `json:"tool"`
	Figure string  `json:"figure"`
	Unit   string  `json:"unit"`
	Ours   float64 `json:"corescope"`
	Peer   float64 `json:"libbpf_tools"`
	Ratio  float64 `json:"ratio"`
	// Target is the largest ratio that is aimed at, Limit the largest value of ours, Least
	// the least one.
	Target float64 `json:"target,omitempty"`
	Limit  float64 `json:"limit,omitempty"`
	Least  float64 `json:"least,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// met tells whether the figure is as good as it should be, or "" where nothing is aimed at,
// nothing was measured or there is no peer to compare with.
func (r *result) met() string {
	switch {
	case r.aim() == "", r.Target > 0 && r.Ratio == 0, r.isMissing():
		return ""
	case r.Target > 0 && r.Ratio > r.Target, r.Limit > 0 && r.Ours > r.Limit, r.Ours < r.Least:
		return "no"
	}
	return "yes"
}

// isMissing tells that nothing was measured: what has a limit takes some of it.
func (r *result) isMissing() bool { return r.Limit > 0 && r.Ours == 0 }

func (r *result) aim() string {
	switch {
	case r.Target > 0:
		return fmt.Sprintf("≤ %g ×", r.Target)
	case r.Limit > 0:
		return fmt.Sprintf("≤ %g %s", r.Limit, r.Unit)
	case r.Least > 0:
		return fmt.Sprintf("≥ %g %s", r.Least, r.Unit)
	}
	return ""
}

// compare makes a result of both's values, a round each; without a peer it has no values.
func (m *measurer) compare(figure, unit string, values [2][]float64, target float64) result {
	r := result{Tool: m.name(), Figure: figure, Unit: unit, Ours: median(values[0]), Target: target, Note: m.note}
	var ratios []float64
	for i, peer := range values[1] {
		if peer > 0 {
			ratios = append(ratios, values[0][i]/peer)
		}
	}
	r.Peer, r.Ratio = median(values[1]), median(ratios)
	return r
}

func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return 0
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// results are the figures of the samples at one rate; alone are the load's own times
// without any subject.
func (m *measurer) results(samples [2][]sample, alone []float64, rate int) []result {
	of := func(f func(*sample) float64) (out [2][]float64) {
		for i := range samples {
			for k := range samples[i] {
				out[i] = append(out[i], f(&samples[i][k]))
			}
		}
		return out
	}
	perEvent := of(func(s *sample) float64 { return float64(s.kernel) / float64(s.load.Count) })
	target := m.unpaced
	if rate > 0 {
		target = m.paced
	}
	all := []result{m.compare("in the kernel, "+pacing(rate), "ns/"+m.unit, perEvent, target)}
	if rate > 0 {
		return all
	}
	slow := slowdowns(samples, alone)
	all = append(all, m.compare("load's time, with ÷ without", "×", slow, 1))
	if m.rows != 0 {
		all = append(all, m.rowResults(of, samples)...)
	}
	rss := m.compare("peak memory without rings", "MB", of(func(s *sample) float64 { return float64(s.mem.peak-s.mem.rings) / 1e6 }), 0)
	if !m.isFurther {
		rss.Limit = 12
	}
	maps := m.compare("maps and buffers in the kernel", "MB", of(func(s *sample) float64 { return float64(s.memory) / 1e6 }), 0)
	if m.tool == "execsnoop" {
		maps.Target = 0.2
	}
	stop := m.compare("stop", "ms", of(func(s *sample) float64 { return float64(s.stop) / 1e6 }), 0)
	stop.Limit = 100
	return append(all, rss, maps, stop)
}

// slowdowns are the loads' times beside a subject, divided by those beside none in the
// same rounds.
func slowdowns(samples [2][]sample, alone []float64) (out [2][]float64) {
	for i := range samples {
		for round := range samples[i] {
			out[i] = append(out[i], samples[i][round].load.Wall.Seconds()/alone[round])
		}
	}
	return out
}

// rowResults are the figures of tools that write rows: CPU for a million of them, and
// how much of what happened was seen.
func (m *measurer) rowResults(of func(func(*sample) float64) [2][]float64, samples [2][]sample) []result {
	cpu := m.compare("user space, unpaced", "CPU s/million rows", of(func(s *sample) float64 {
		return s.cpu.Seconds() * 1e6 / float64(max(s.rows, 1))
	}), m.perRow())
	if m.rows == unknown {
		return []result{cpu}
	}
	return []result{cpu, m.seenResult("seen, unpaced", samples)}
}

// perRow is how much of the peer's time in user space ours may take.
func (m *measurer) perRow() float64 {
	if m.isFurther {
		return 1
	}
	return 0.2
}

// seenResult is how many of the load's rows were written. Ours is to say exactly what it
// has lost, so that both together are all in each round.
func (m *measurer) seenResult(figure string, samples [2][]sample) result {
	var values [2][]float64
	lost, unsaid, hidden := 0, 0, 0
	for i := range samples {
		for _, s := range samples[i] {
			all := m.rows * s.load.Count
			values[i] = append(values[i], 100*float64(s.rows)/float64(all))
			if i != 0 {
				continue
			}
			lost = max(lost, s.lost)
			switch missing := all - s.rows - s.lost; {
			case missing > 0 && missing <= s.hidden:
				hidden = max(hidden, missing)
			case missing != 0:
				unsaid = missing
			}
		}
	}
	r := m.compare(figure, "%", values, 0)
	switch {
	case unsaid != 0:
		r.Least, r.Note = 100, fmt.Sprintf("in a round corescope said nothing of %d", unsaid)
	case hidden > 0:
		r.Note = fmt.Sprintf("up to %d in a round fell into the runs of process 1, which this guest hides from BPF", hidden)
	case lost > 0:
		r.Note = fmt.Sprintf("the rest is what corescope says that it lost, %d at most in a round", lost)
	default:
		r.Least = 100
	}
	return r
}

// machine says what was measured on.
type machine struct {
	Date   string `json:"date"`
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
	CPU    string `json:"cpu"`
	Rounds int    `json:"rounds"`
}

func describeMachine(s *settings, cpus int) machine {
	m := machine{Date: time.Now().UTC().Format(time.DateOnly), CPUs: cpus, Rounds: s.rounds}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Release[:]) + " " + unix.ByteSliceToString(name.Machine[:])
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, val, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(val)
		}
	}
	return m
}

var header = []string{"tool", "figure", "unit", "corescope", "libbpf-tools", "ratio", "aim", "met", "note"}

func (r *result) cells() []string {
	number := func(f float64) string { return fmt.Sprintf("%.4g", f) }
	ours, peer, ratio := number(r.Ours), "", ""
	if r.isMissing() {
		ours = ""
	}
	if r.Ratio > 0 {
		peer, ratio = number(r.Peer), fmt.Sprintf("%.2f", r.Ratio)
	}
	return []string{r.Tool, r.Figure, r.Unit, ours, peer, ratio, r.aim(), r.met(), r.Note}
}

func printTable(w io.Writer, all []result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header, "\t"))
	for _, r := range all {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(r.cells(), "\t"), "\t"))
	}
	return tw.Flush()
}

func markdown(m machine, all []result) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%s, kernel %s, %d CPUs (%s); medians of %d rounds, ratios of each round's pair.\n\n",
		docHead, m.Date, m.Kernel, m.CPUs, m.CPU, m.Rounds)
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(header, " | "), strings.Repeat("---|", len(header)))
	for _, r := range all {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r.cells(), " | "))
	}
	return b.Bytes()
}

const docHead = `# Benchmarks

This file is written by ` + "`make bench`" + `: do not edit it. corescope's tools and those of libbpf-tools 0.37
run in turn under the same loads: opens of a path that is not there, runs of /bin/true, connections
of this host with itself, reads past the page cache, bytes sent between two threads, calls of getppid, and writes
to a file in the page cache. What each figure is and how it is measured stands in test/bench/doc.go. A figure without
a peer's value is of a peer that does not run on this kernel, or of ours alone. Where an aim is missed, [costs.md](costs.md) says why.
`

func conclude(all []result, s *settings) error {
	if err := printTable(os.Stdout, all); err != nil || !s.whole {
		return err
	}
	m := describeMachine(s, runtime.NumCPU())
	if err := os.WriteFile("docs/benchmarks.md", markdown(m, all), 0o644); err != nil {
		return err
	}
	b, err := json.MarshalIndent(struct {
		machine
		Results []result `json:"results"`
	}{m, all}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile("docs/benchmarks.json", append(b, '\n'), 0o644)
}
