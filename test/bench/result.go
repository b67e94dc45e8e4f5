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
	// Target is the largest ratio that is aimed at, Limit the largest value of ours.
	Target float64 `json:"target,omitempty"`
	Limit  float64 `json:"limit,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// met tells whether the figure is as good as it should be.
func (r *result) met() string {
	switch {
	case r.Target == 0 && r.Limit == 0:
		return ""
	case r.Target > 0 && r.Ratio > r.Target, r.Limit > 0 && r.Ours > r.Limit:
		return "no"
	}
	return "yes"
}

func (r *result) aim() string {
	switch {
	case r.Target > 0:
		return fmt.Sprintf("≤ %g ×", r.Target)
	case r.Limit > 0:
		return fmt.Sprintf("≤ %g %s", r.Limit, r.Unit)
	}
	return ""
}

// compare makes a result of both's values, a round each.
func (m *measurer) compare(figure, unit string, values [2][]float64, target float64) result {
	var ratios []float64
	for i, ours := range values[0] {
		ratios = append(ratios, ours/values[1][i])
	}
	return result{
		Tool: m.name(), Figure: figure, Unit: unit, Ours: median(values[0]), Peer: median(values[1]),
		Ratio: median(ratios), Target: target,
	}
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
	slow := of(func(s *sample) float64 { return s.load.Wall.Seconds() / median(alone) })
	all = append(all, m.compare("load's time, with ÷ without", "×", slow, 1))
	if m.rows > 0 {
		all = append(all, m.rowResults(of, samples)...)
	}
	rss := m.compare("peak memory without rings", "MB", of(func(s *sample) float64 { return float64(s.mem.peak-s.mem.rings) / 1e6 }), 0)
	rss.Limit = 12
	maps := m.compare("maps and buffers in the kernel", "MB", of(func(s *sample) float64 { return float64(s.memory) / 1e6 }), 0)
	if m.tool == "execsnoop" {
		maps.Target = 0.2
	}
	stop := m.compare("stop", "ms", of(func(s *sample) float64 { return float64(s.stop) / 1e6 }), 0)
	stop.Limit = 100
	return append(all, rss, maps, stop)
}

// rowResults are the figures of tools that write rows: CPU for a million of them, and
// how much of what happened was seen.
func (m *measurer) rowResults(of func(func(*sample) float64) [2][]float64, samples [2][]sample) []result {
	cpu := m.compare("user space, unpaced", "CPU s/million rows", of(func(s *sample) float64 {
		return s.cpu.Seconds() * 1e6 / float64(max(s.rows, 1))
	}), 0.2)
	seen := m.compare("seen, unpaced", "%", of(func(s *sample) float64 {
		return 100 * float64(s.rows) / float64(m.rows*s.load.Count)
	}), 0)
	lost := 0
	for i := range samples[0] {
		lost += samples[0][i].lost
	}
	seen.Note = fmt.Sprintf("corescope says that it lost %d", lost)
	return []result{cpu, seen}
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
	return []string{r.Tool, r.Figure, r.Unit, number(r.Ours), number(r.Peer), fmt.Sprintf("%.2f", r.Ratio), r.aim(), r.met(), r.Note}
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
of this host with itself, reads past the page cache, and bytes sent between two threads. *In the kernel* is the
run time of a tool's programs, divided by the load's events.
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
