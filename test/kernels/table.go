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

// table is a header and rows, printed as text or Markdown.
type table [][]string

func (t table) text(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range t {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return tw.Flush()
}

func (t table) markdown(w io.Writer) {
	header, rows, _ := strings.Cut(t.lines(), "\n")
	fmt.Fprintf(w, "%s\n%s|\n%s", header, strings.Repeat("|---", len(t[0])), rows)
}

// rows returns the rows in Markdown, without the header.
func (t table) rows() string {
	return t[1:].lines()
}

func (t table) lines() string {
	var b strings.Builder
	for _, row := range t {
		for _, cell := range row {
			fmt.Fprintf(&b, "| %s ", strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell))
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// variant is a row: one attach type of a hook, with one type of buffer.
type variant struct {
	tool, hook, kind, where string
	perf                    bool
	events                  bool
}

func (w *variant) buffer() string {
	switch {
	case !w.events:
		return "-"
	case w.perf:
		return "perf"
	}
	return "ring"
}

// variantsOf lists all attach types of all hooks of a tool, for all kernels.
func variantsOf(t *tool.Tool) ([]variant, error) {
	spec, err := t.Object()
	if err != nil {
		return nil, fmt.Errorf("read BPF object of %s: %w", t.Name, err)
	}
	events, err := hasEvents(t)
	if err != nil {
		return nil, err
	}
	var all []variant
	for _, h := range probe.Hooks(spec) {
		for _, v := range h.Variants {
			w := variant{tool: t.Name, hook: h.Name, kind: v.Kind, where: v.String(), events: events}
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

// cell returns the result of the attach type on the report's kernel.
func (r *report) cell(w *variant) string {
	found := r.resultOf(w.tool)
	if r.tools[w.tool] == nil {
		return notTested
	}
	i := slices.IndexFunc(found.Variants, func(v plan.Variant) bool { return v.Hook == w.hook && v.Kind == w.kind })
	if i < 0 {
		return "not tried"
	}
	tried := found.Variants[i]
	switch {
	case tried.Refused():
		return "FAIL: refused"
	case !tried.Works():
		return tried.Result
	}
	for _, c := range found.Checks {
		covers := c.Hook == w.hook && c.Kind == w.kind || c.Hook == "" && tried.Taken
		if c.Perf != w.perf || !covers {
			continue
		}
		if c.OK() {
			return passed
		}
		return "FAIL"
	}
	return "not run"
}

// variantsTable has a row for each attach type of the tool, and a column for each kernel.
func variantsTable(reports []*report, variants []variant) table {
	header := []string{"hook", "kind", "where", "buffer"}
	for _, r := range reports {
		header = append(header, r.kernel.name)
	}
	t := table{header}
	for _, w := range variants {
		row := []string{w.hook, w.kind, w.where, w.buffer()}
		for _, r := range reports {
			row = append(row, r.cell(&w))
		}
		t = append(t, row)
	}
	return t
}

// toolsTable shows for each tool and kernel whether the tool works, and the attach types.
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

// toolCell returns "works", "FAILS", "not run", or "not supported" if the kernel supports no hook of
// the tool, and the attach type of each hook.
func (r *report) toolCell(tool string) string {
	found := r.resultOf(tool)
	if r.tools[tool] == nil {
		return notTested
	}
	if found.Error != "" {
		return "FAILS: " + found.Error
	}
	var hooks []string
	for _, w := range found.Variants {
		if w.Taken {
			hooks = append(hooks, w.Hook+" "+w.Kind)
		} else if !slices.ContainsFunc(found.Variants, func(v plan.Variant) bool { return v.Hook == w.Hook && v.Taken }) {
			hooks = append(hooks, w.Hook+" "+w.Result)
		}
	}
	if found.Lacks != "" && len(r.failures(tool)) == 0 {
		_, reason, _ := strings.Cut(found.Lacks, "not supported")
		return "not supported" + strings.TrimRight(reason, "\n")
	}
	state := "works"
	switch {
	case len(r.failures(tool)) > 0:
		state = "FAILS"
	case len(found.Checks) == 0:
		state = "not run"
	case len(hooks) > 0 && !slices.ContainsFunc(found.Variants, func(v plan.Variant) bool { return v.Taken }):
		state = "not supported"
	}
	if len(hooks) == 0 {
		return state
	}
	return state + ": " + strings.Join(slices.Compact(hooks), ", ")
}
