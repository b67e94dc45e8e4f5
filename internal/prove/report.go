package prove

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Run is a run of the command prove.
type Run struct {
	Prover
	Tools   []string
	Format  string // text, json or tap
	Verbose bool
	DryRun  bool
	Kernel  string
	Out     io.Writer
	Err     io.Writer
}

// ErrNotPermitted is returned if tools cannot run because this process lacks privileges.
var ErrNotPermitted = errors.New("not permitted")

// ErrNothingProved is returned if no tool was proved and none contradicted.
var ErrNothingProved = errors.New("nothing was proved")

// Do proves the tools, and reports whether none is contradicted. It writes a report also if ctx is done before
// the last tool.
//
// Returns ErrNotPermitted or ErrNothingProved.
func (r *Run) Do(ctx context.Context) (bool, error) {
	if r.DryRun {
		return true, r.plan()
	}
	fmt.Fprintf(r.Err, "corescope: prove: runs small workloads for %d tools, one after the other, in processes, cgroups and directories "+
		"(below %s) of their own; --dry-run lists them\n", len(r.Tools), tempDir())
	report := Report{Kernel: r.Kernel}
	if r.Format == "tap" {
		fmt.Fprintf(r.Out, "TAP version 13\n1..%d\n", len(r.Tools))
	}
	for i, name := range r.Tools {
		t := r.Tool(ctx, name)
		report.Tools = append(report.Tools, t)
		report.Contradicted = report.Contradicted || t.Result == Contradicted
		if err := r.write(i, t); err != nil {
			return false, err
		}
		if report.Interrupted = ctx.Err() != nil; report.Interrupted {
			break
		}
	}
	if err := r.end(report); err != nil {
		return false, err
	}
	return !report.Contradicted, r.incomplete(report)
}

// incomplete returns an error if the run was interrupted, or not permitted, or has no result.
func (r *Run) incomplete(report Report) error {
	if report.Interrupted {
		return fmt.Errorf("interrupted after %d of %d tools", len(report.Tools)-1, len(r.Tools))
	}
	var denied []string
	for _, t := range report.Tools {
		if t.denied {
			denied = append(denied, t.Tool)
		}
	}
	isProved := func(t Tool) bool { return t.Result == Proved }
	switch {
	case report.Contradicted:
		return nil
	case len(denied) == 0 && !slices.ContainsFunc(report.Tools, isProved):
		return fmt.Errorf("%w: the output has the reason for each tool", ErrNothingProved)
	case len(denied) == 0:
		return nil
	}
	return fmt.Errorf("%w: %d of %d tools, such as %s (run prove as root; corescope doctor names what is missing)",
		ErrNotPermitted, len(denied), len(r.Tools), denied[0])
}

// plan prints what would run.
func (r *Run) plan() error {
	for _, name := range r.Tools {
		t := Plan(name)
		line := fmt.Sprintf("%s: %s: %s\n", name, t.Result, t.Reason)
		if t.Workload != "" {
			line = fmt.Sprintf("%s: %s; observed with: corescope %s\n", name, t.Workload, strings.Join(t.Args, " "))
		}
		if p := proofOf(name); r.Stats && p != nil && p.whole != "" {
			line += fmt.Sprintf("%s: the same again; observed with: corescope %s\n", name, strings.Join(p.line(p.whole, nil, true), " "))
		}
		if _, err := io.WriteString(r.Out, line); err != nil {
			return fmt.Errorf("write plan: %w", err)
		}
	}
	return nil
}

func (r *Run) write(i int, t Tool) error {
	text := ""
	switch r.Format {
	case "text":
		text = t.text(r.Verbose)
	case "tap":
		text = t.tap(i + 1)
	}
	if _, err := io.WriteString(r.Out, text); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

func (r *Run) end(report Report) error {
	var err error
	switch r.Format {
	case "json":
		enc := json.NewEncoder(r.Out)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		err = enc.Encode(report)
	case "text":
		_, err = io.WriteString(r.Out, report.summary())
	case "tap":
		if report.Interrupted {
			_, err = io.WriteString(r.Out, "Bail out! interrupted\n")
		}
	}
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (r *Report) summary() string {
	n := map[Result]int{}
	columns := 0
	for _, t := range r.Tools {
		n[t.Result]++
		columns += len(t.of(Proved))
	}
	return fmt.Sprintf("%d tools proved (%d columns), %d contradicted, %d not provable here\n", n[Proved], columns, n[Contradicted], n[NotProvable])
}

func (t *Tool) of(result Result) []string {
	var names []string
	for _, c := range t.Columns {
		if c.Result == result {
			names = append(names, c.Column)
		}
	}
	return names
}

// text returns the lines of a tool.
func (t *Tool) text(verbose bool) string {
	b := fmt.Sprintf("%-16s %s", t.Tool, t.Result)
	switch t.Result {
	case NotProvable:
		b += ": " + t.Reason
	default:
		b += fmt.Sprintf(": %s (%s, %.1f s)", strings.Join(t.of(Proved), ", "), t.Workload, t.Seconds)
	}
	b += "\n"
	for _, c := range t.Columns {
		if c.Result == Contradicted || verbose {
			b += "  " + c.text() + "\n"
		}
	}
	if t.Stats != nil {
		b += t.Stats.text(verbose)
	}
	return b
}

func (c *Column) text() string {
	from := ""
	if c.Source != "" {
		from = " by " + c.Source
	}
	switch c.Result {
	case Contradicted:
		return fmt.Sprintf("%s: contradicted: the tool shows %s, want %s%s", c.Column, c.Got, c.Want, from)
	case NotProvable:
		return fmt.Sprintf("%s: not provable here: %s", c.Column, c.Reason)
	}
	return fmt.Sprintf("%s: proved with %d values, such as %s%s", c.Column, c.Values, c.Got, from)
}

// tap returns the lines of a tool in the format of the Test Anything Protocol.
func (t *Tool) tap(number int) string {
	switch t.Result {
	case NotProvable:
		return fmt.Sprintf("ok %d - %s # SKIP not provable here: %s\n", number, t.Tool, strings.ReplaceAll(t.Reason, "#", "\\#"))
	case Proved:
		return fmt.Sprintf("ok %d - %s\n", number, t.Tool)
	}
	b := fmt.Sprintf("not ok %d - %s\n", number, t.Tool)
	for _, c := range append(t.Stats.laws(), t.Columns...) {
		if c.Result == Contradicted {
			b += "# " + c.text() + "\n"
		}
	}
	return b
}
