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

// result is a figure: the medians over all rounds, and the median of the ratios.
type result struct {
	Tool   string  `json:"tool"`
	Figure string  `json:"figure"`
	Unit   string  `json:"unit"`
	Ours   float64 `json:"corescope"`
	Peer   float64 `json:"libbpf_tools"`
	Ratio  float64 `json:"ratio"`
	// Target is the maximum ratio, Limit and Least are the maximum and minimum of Ours.
	Target float64 `json:"target,omitempty"`
	Limit  float64 `json:"limit,omitempty"`
	Least  float64 `json:"least,omitempty"`
	Note   string  `json:"note,omitempty"`
}

// met returns "yes" or "no", or "" if the figure has no target, was not measured or lacks a
// peer to compare with.
func (r *result) met() string {
	switch {
	case r.target() == "", r.Target > 0 && r.Ratio == 0, r.isMissing():
		return ""
	case r.Target > 0 && r.Ratio > r.Target, r.Limit > 0 && r.Ours > r.Limit, r.Ours < r.Least:
		return "no"
	}
	return "yes"
}

// isMissing reports whether the figure was not measured. Figures with a limit are never 0.
func (r *result) isMissing() bool { return r.Limit > 0 && r.Ours == 0 }

func (r *result) target() string {
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

// compare returns the result for the values of corescope and of the peer in each round. The
// values of the peer may be empty.
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

// results returns the figures of the samples at one rate. alone are the durations of the load
// without a tool, in seconds.
func (m *measurer) results(samples [2][]sample, alone []float64, rate int) []result {
	perRound := func(f func(*sample) float64) (out [2][]float64) {
		for i := range samples {
			for k := range samples[i] {
				out[i] = append(out[i], f(&samples[i][k]))
			}
		}
		return out
	}
	perEvent := perRound(func(s *sample) float64 { return float64(s.kernel) / float64(s.load.Count) })
	target := m.unpaced
	if rate > 0 {
		target = m.paced
	}
	all := []result{m.compare("BPF run time, "+pacing(rate), "ns/"+m.unit, perEvent, target)}
	if rate > 0 {
		return all
	}
	slow := slowdowns(samples, alone)
	all = append(all, m.compare("load duration, with ÷ without tool", "×", slow, 1))
	if m.rows != 0 {
		all = append(all, m.rowResults(perRound, samples)...)
	}
	rss := m.compare("peak memory without ring buffers", "MB", perRound(func(s *sample) float64 { return float64(s.mem.peak-s.mem.rings) / 1e6 }), 0)
	if !m.isSecondary {
		rss.Limit = 12
	}
	maps := m.compare("kernel memory", "MB", perRound(func(s *sample) float64 { return float64(s.memory) / 1e6 }), 0)
	if m.tool == "execsnoop" {
		maps.Target = 0.2
	}
	stop := m.compare("time to stop", "ms", perRound(func(s *sample) float64 { return float64(s.stop) / 1e6 }), 0)
	stop.Limit = 100
	return append(all, rss, maps, stop)
}

// slowdowns returns the durations of the load with each subject, divided by the duration
// without a tool in the same round.
func slowdowns(samples [2][]sample, alone []float64) (out [2][]float64) {
	for i := range samples {
		for round := range samples[i] {
			out[i] = append(out[i], samples[i][round].load.Wall.Seconds()/alone[round])
		}
	}
	return out
}

// rowResults returns the figures of tools that write rows: CPU time per million rows and the
// share of reported events.
func (m *measurer) rowResults(perRound func(func(*sample) float64) [2][]float64, samples [2][]sample) []result {
	cpu := m.compare("CPU time in user space, unpaced", "s/million rows", perRound(func(s *sample) float64 {
		return s.cpu.Seconds() * 1e6 / float64(max(s.rows, 1))
	}), m.perRow())
	if m.rows == unknown {
		return []result{cpu}
	}
	return []result{cpu, m.reportedResult("events reported, unpaced", samples)}
}

// perRow returns the target ratio of CPU time in user space to that of the peer.
func (m *measurer) perRow() float64 {
	if m.isSecondary {
		return 1
	}
	return 0.2
}

// reportedResult returns the share of the expected rows that were written. In each round, the
// rows and the events that corescope counts as lost must add up to the expected rows.
func (m *measurer) reportedResult(figure string, samples [2][]sample) result {
	var values [2][]float64
	lost, unaccounted, hidden := 0, 0, 0
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
				unaccounted = missing
			}
		}
	}
	r := m.compare(figure, "%", values, 0)
	switch {
	case unaccounted != 0:
		r.Least, r.Note = 100, fmt.Sprintf("%d events in a round neither reported nor counted as lost", unaccounted)
	case hidden > 0:
		r.Note = fmt.Sprintf("up to %d events in a round happened while process 1 ran, which this guest hides from BPF", hidden)
	case lost > 0:
		r.Note = fmt.Sprintf("corescope counts the rest as lost, at most %d in a round", lost)
	default:
		r.Least = 100
	}
	return r
}

// machine describes the machine and the run.
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

// header returns the titles of the columns. peer is what corescope is compared with.
func header(peer string) []string {
	return []string{"tool", "figure", "unit", ourName, peer, "ratio", "target", "met", "note"}
}

func (r *result) cells() []string {
	number := func(f float64) string { return fmt.Sprintf("%.4g", f) }
	ours, peer, ratio := number(r.Ours), "", ""
	if r.isMissing() {
		ours = ""
	}
	if r.Ratio > 0 {
		peer, ratio = number(r.Peer), fmt.Sprintf("%.2f", r.Ratio)
	}
	return []string{r.Tool, r.Figure, r.Unit, ours, peer, ratio, r.target(), r.met(), r.Note}
}

func printTable(w io.Writer, peer string, all []result) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(header(peer), "\t"))
	for _, r := range all {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(r.cells(), "\t"), "\t"))
	}
	return tw.Flush()
}

func markdown(m machine, all []result) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nMeasured on %s, kernel %s, %d CPUs (%s). Medians of %d rounds.\n\n",
		docHead, m.Date, m.Kernel, m.CPUs, m.CPU, m.Rounds)
	titles := header(peerName)
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(titles, " | "), strings.Repeat("---|", len(titles)))
	for _, r := range all {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(r.cells(), " | "))
	}
	return b.Bytes()
}

const docHead = `# Benchmarks

` + "`make bench`" + ` generates this file: do not edit it. The tools of corescope and of libbpf-tools 0.37
run in turn under the same loads: open() of a path that does not exist, exec of /bin/true, TCP
connections over loopback, O_DIRECT reads, bytes passed between two threads, calls of getppid(), and
writes to a file in the page cache.

[test/bench/doc.go](../test/bench/doc.go) defines the figures. The value for libbpf-tools is missing
if its tool does not run on this kernel, or if the figure has no counterpart. [costs.md](costs.md)
explains the missed targets.
`

// writeResults prints the results and, after a full run, writes the files.
func writeResults(all []result, s *settings) error {
	if err := printTable(os.Stdout, s.peer(), all); err != nil || !s.isFull {
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
