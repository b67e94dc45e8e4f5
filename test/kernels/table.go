package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/test/kernels/plan"
)

// table is a header and rows, for a terminal and for Markdown.
type table [][]string

func (t table) text(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range t {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return tw.Flush()
}

func (t table) markdown(w io.Writer) {
	for i, row := range t {
		for _, cell := range row {
			fmt.Fprintf(w, "| %s ", strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell))
		}
		fmt.Fprintln(w, "|")
		if i == 0 {
			fmt.Fprintln(w, strings.Repeat("|---", len(row))+"|")
		}
	}
}

// way is a row: one way to a hook, by one of the buffers.
type way struct {
	tool, hook, kind, where string
	perf                    bool
	events                  bool
}

func (w *way) buffer() string {
	switch {
	case !w.events:
		return "-"
	case w.perf:
		return "perf"
	}
	return "ring"
}

// waysOf lists all ways that a tool has on any kernel.
func waysOf(t *tool.Tool) ([]way, error) {
	spec, err := t.Object()
	if err != nil {
		return nil, fmt.Errorf("read BPF object of %s: %w", t.Name, err)
	}
	events, err := hasEvents(t)
	if err != nil {
		return nil, err
	}
	var all []way
	for _, h := range probe.Hooks(spec) {
		for _, v := range h.Variants {
			w := way{tool: t.Name, hook: h.Name, kind: v.Kind, where: v.String(), events: events}
			all = append(all, w)
			if events {
				w.perf = true
				all = append(all, w)
			}
		}
	}
	return all, nil
}

const (
	passed    = "pass"
	notTested = "not tested"
)

// cell is how the way fared on the report's kernel.
func (r *report) cell(w *way) string {
	told := r.of(w.tool)
	if r.tools[w.tool] == nil {
		return notTested
	}
	i := slices.IndexFunc(told.Ways, func(v plan.Way) bool { return v.Hook == w.hook && v.Kind == w.kind })
	if i < 0 {
		return "not tried"
	}
	found := told.Ways[i]
	switch {
	case found.Refused():
		return "FAIL: refused"
	case !found.Works():
		return found.Result
	}
	for _, c := range told.Checks {
		isIts := c.Hook == w.hook && c.Kind == w.kind || c.Hook == "" && found.Taken
		if c.Perf != w.perf || !isIts {
			continue
		}
		if c.OK() {
			return passed
		}
		return "FAIL"
	}
	return "not run"
}

// waysTable has a row for each way of the tool, and a column for each kernel.
func waysTable(reports []*report, ways []way) table {
	header := []string{"hook", "kind", "where", "buffer"}
	for _, r := range reports {
		header = append(header, r.kernel.name)
	}
	t := table{header}
	for _, w := range ways {
		row := []string{w.hook, w.kind, w.where, w.buffer()}
		for _, r := range reports {
			row = append(row, r.cell(&w))
		}
		t = append(t, row)
	}
	return t
}

// toolsTable tells for each tool and kernel whether it works, and by which ways.
func toolsTable(reports []*report, all []*tool.Tool) table {
	header := []string{"tool"}
	for _, r := range reports {
		header = append(header, r.kernel.name)
	}
	t := table{header}
	for _, tl := range all {
		row := []string{tl.Name}
		for _, r := range reports {
			row = append(row, r.toolCell(tl.Name))
		}
		t = append(t, row)
	}
	return t
}

// toolCell is "works", if all checks passed, and the kind of each hook.
func (r *report) toolCell(tool string) string {
	told := r.of(tool)
	if r.tools[tool] == nil {
		return notTested
	}
	if told.Error != "" {
		return "FAILS: " + told.Error
	}
	var hooks []string
	for _, w := range told.Ways {
		if w.Taken {
			hooks = append(hooks, w.Hook+" "+w.Kind)
		} else if !slices.ContainsFunc(told.Ways, func(v plan.Way) bool { return v.Hook == w.Hook && v.Taken }) {
			hooks = append(hooks, w.Hook+" "+w.Result)
		}
	}
	state := "works"
	if len(r.failures(tool)) > 0 {
		state = "FAILS"
	}
	return state + ": " + strings.Join(slices.Compact(hooks), ", ")
}
