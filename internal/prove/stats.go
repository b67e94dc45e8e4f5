package prove

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Stats are the conservation laws of a run: what must hold whatever the workload did.
type Stats struct {
	Rows      int       `json:"rows" help:"rows of the tool, of all tasks that it showed; of histograms the number of values"`
	Lost      int       `json:"lost" help:"events that the tool reports as lost"`
	Runs      int       `json:"runs" help:"runs of all programs of the tool, as the kernel counted them (BPF statistics)"`
	Durations int       `json:"durations" help:"durations in the rows"`
	Programs  []Program `json:"programs" help:"the programs of the tool"`
	Laws      []Column  `json:"laws" help:"the result of each law that applies to the tool"`
}

// Program is a BPF program of a tool.
type Program struct {
	Program string `json:"program" help:"name of the program"`
	Runs    int    `json:"runs" help:"how often it ran, as the kernel counted it"`
}

// The laws.
const (
	lawDurations = "no negative duration"
	lawRuns      = "rows + lost <= runs"
	lawHits      = "rows + lost = hits"
	lawPairs     = "entries = exits"
)

// statsOf checks the laws that hold for the rows of the tool and those of the workload.
func (p *proof) statsOf(o *observation, rows []row) *Stats {
	s := &Stats{Rows: o.count, Lost: o.reported.sum(), Programs: o.programs}
	for _, r := range o.programs {
		s.Runs += r.Runs
	}
	s.durations(o.rows)
	if n := s.Rows + o.reported.inRuns(); s.Runs > 0 && !p.list {
		s.law(lawRuns, n <= s.Runs, strconv.Itoa(n), fmt.Sprintf("at most %d", s.Runs), "BPF statistics")
	}
	if p.pairs != "" {
		s.Laws = append(s.Laws, unpaired(rows, p.pairs, o.lost))
	}
	return s
}

// inRuns returns the events that were lost while a program ran. The kernel does not count runs that it skips.
func (l losses) inRuns() int { return l.sum() - l["program_busy"] - l["unobserved"] }

// law adds the result of a law about a number.
func (s *Stats) law(name string, holds bool, got, want, source string) {
	c := Column{Column: name, Result: Proved, Values: 1, Want: want, Got: got, Source: source}
	if !holds {
		c.Result = Contradicted
	}
	s.Laws = append(s.Laws, c)
}

// longestDuration is more than the time since any boot: 146 years in ns. A difference of unsigned numbers that is
// negative is greater.
const longestDuration = 1 << 62

// durations looks for negative durations.
func (s *Stats) durations(rows []row) {
	c := Column{Column: lawDurations, Result: Proved, Want: "at least 0"}
	for _, r := range rows {
		for key, v := range flat(r) {
			limit, isDuration := limitOf(r, key)
			n, isNumber := number(v)
			if !isDuration || !isNumber {
				continue
			}
			s.Durations++
			if n < 0 || n >= limit {
				c.Result, c.Got = Contradicted, fmt.Sprintf("%s %s in %s", key, text(v), text(r))
			}
		}
	}
	if c.Values = s.Durations; s.Durations > 0 {
		if c.Result == Proved {
			c.Got = "none of " + strconv.Itoa(s.Durations)
		}
		s.Laws = append(s.Laws, c)
	}
}

// limitOf returns the limit of the values of a column if they are durations.
func limitOf(r row, key string) (limit float64, ok bool) {
	if strings.HasSuffix(key, "_ns") {
		return longestDuration, true
	}
	if key != "min" && key != "max" {
		return 0, false
	}
	switch r["unit"] { // of a histogram
	case "nsecs":
		return longestDuration, true
	case "usecs":
		return longestDuration / 1000, true
	case "msecs":
		return longestDuration / 1_000_000, true
	}
	return 0, false
}

// unpaired counts the rows that begin something and those that end it, which pairs describes: a column, its value
// of beginnings (several with commas between), its value of ends, and the columns that both have in common.
func unpaired(rows []row, pairs string, lost losses) Column {
	f := strings.Fields(pairs)
	column, begins, end, by := f[0], strings.Split(f[1], ","), f[2], f[3:]
	open := map[string]int{}
	c := Column{Column: lawPairs, Result: Proved, Want: "0"}
	for _, r := range rows {
		kind, _ := r[column].(string)
		switch {
		case slices.Contains(begins, kind):
			open[r.id(by)]++
		case kind == end:
			open[r.id(by)]--
		default:
			continue
		}
		c.Values++
	}
	n := 0
	for _, left := range open {
		n += max(left, -left)
	}
	c.Got = strconv.Itoa(n) + " without the other"
	switch {
	case n > 0 && lost.sum() > 0:
		c.Result, c.Reason = NotProvable, "events were lost: "+lost.String()
	case n > 0:
		c.Result = Contradicted
	}
	return c
}

// whole checks that every hit of a hook that the kernel counts is a row or lost. Only the hits of all tasks can be
// compared, so the tool runs again without its filter.
func (v *Prover) whole(ctx context.Context, p *proof, s *Stats) error {
	w, err := v.start(p, p.n)
	if err != nil {
		return err
	}
	defer w.close()
	o, err := observe(ctx, v.Program, p.line(p.whole, w.facts, true))
	if err != nil {
		return err
	}
	_, err = w.run()
	if stopErr := o.stop(); err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	// Where programs can be preempted, a hook has two programs, which both run for each hit.
	hits := 0
	for _, r := range o.programs {
		if name, _, _ := strings.Cut(r.Program, "__"); name == p.hook {
			hits = max(hits, r.Runs)
		}
	}
	shown := o.count
	if p.counters != "" {
		shown = o.total(strings.Fields(p.counters))
	}
	// The kernel counts runs at their end: on each CPU one may be in progress.
	shown += o.reported.inRuns()
	inProgress := runtime.NumCPU()
	s.law(lawHits, shown >= hits-inProgress && shown <= hits+inProgress, strconv.Itoa(shown), fmt.Sprintf("%d within %d", hits, inProgress),
		"BPF statistics of hook "+p.hook+" in all tasks")
	if c := &s.Laws[len(s.Laws)-1]; c.Result == Contradicted && o.reported.sum() > 0 {
		c.Result, c.Reason = NotProvable, "events were lost: "+o.reported.String()
	}
	return nil
}

// total sums some counters of all rows.
func (o *observation) total(counters []string) int {
	n := 0
	for _, r := range o.rows {
		for _, k := range counters {
			f, _ := number(r[k])
			n += int(f)
		}
	}
	return n
}

// laws returns the results of the laws.
func (s *Stats) laws() []Column {
	if s == nil {
		return nil
	}
	return slices.Clone(s.Laws)
}

// text returns the lines of the laws.
func (s *Stats) text(verbose bool) string {
	b := fmt.Sprintf("  %d rows, %d lost; %d runs:", s.Rows, s.Lost, s.Runs)
	for _, r := range s.Programs {
		b += fmt.Sprintf(" %s %d", r.Program, r.Runs)
	}
	b += "\n"
	for _, c := range s.Laws {
		if c.Result != Proved || verbose {
			b += "  " + c.text() + "\n"
		} else {
			b += fmt.Sprintf("  %s: holds: %s, want %s\n", c.Column, c.Got, c.Want)
		}
	}
	return b
}
