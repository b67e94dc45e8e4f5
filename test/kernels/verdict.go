package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/test/kernels/plan"
)

// verdict is a check in one line.
func verdict(c *plan.Check) string {
	counts := fmt.Sprintf("%d passed, %d failed, %d skipped, %.0f s", c.Passed, len(c.Failed), len(c.Skipped), c.Seconds)
	if c.OK() {
		return "pass: " + counts
	}
	return "FAIL: " + counts
}

// complaint is all that is wrong with a check.
func complaint(c *plan.Check) string {
	var lines []string
	if c.Error != "" {
		lines = append(lines, c.Error)
	}
	for _, t := range c.Failed {
		if t.Output != "" { // else its subtests say why
			lines = append(lines, t.Name+": "+t.Output)
		}
	}
	return strings.Join(lines, "\n")
}

func indent(s string) string {
	return "\t" + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n\t")
}

// failures lists what failed for the tool on the report's kernel.
func (r *report) failures(tool string) []string {
	var all []string
	told := r.of(tool)
	if told.Error != "" {
		all = append(all, told.Error)
	}
	for _, w := range told.Ways {
		if w.Refused() {
			all = append(all, fmt.Sprintf("hook %s=%s: %s", w.Hook, w.Kind, w.Result))
		}
	}
	for _, c := range told.Checks {
		if !c.OK() {
			all = append(all, fmt.Sprintf("%s: %s", &c, complaint(&c)))
		}
	}
	return all
}

// unsteady lists the tool's tests that failed at first.
func (r *report) unsteady(tool string) []plan.Test {
	var all []plan.Test
	for _, c := range r.of(tool).Checks {
		all = append(all, c.Unsteady...)
	}
	return all
}

// conclude prints the tables, and last what is wrong. It fails when any check did and, if
// all kernels had their say, when a way was exercised by none of them.
func conclude(reports []*report, all []*tool.Tool, isWhole bool) error {
	var unsteady, wrong []string
	for _, t := range all {
		ways, err := waysOf(t)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s\n", t.Name)
		if err := waysTable(reports, ways).text(os.Stdout); err != nil {
			return err
		}
		for _, r := range reports {
			for _, c := range r.of(t.Name).Checks {
				for _, key := range slices.Sorted(maps.Keys(c.Attrs)) {
					fmt.Printf("%s on %s: %s is %s\n", &c, r.kernel.name, key, c.Attrs[key])
				}
			}
			for _, u := range r.unsteady(t.Name) {
				unsteady = append(unsteady, fmt.Sprintf("%s on %s, passed the second time: %s: %s", t.Name, r.kernel.name, u.Name, u.Output))
			}
			for _, f := range r.failures(t.Name) {
				wrong = append(wrong, fmt.Sprintf("%s on %s: %s", t.Name, r.kernel.name, f))
			}
		}
		for _, w := range never(reports, ways) {
			line := fmt.Sprintf("not exercised: %s %s=%s, buffer %s", w.tool, w.hook, w.kind, w.buffer())
			if isWhole {
				wrong = append(wrong, line)
			} else {
				fmt.Println(line)
			}
		}
	}
	fmt.Println()
	if err := skippedTable(reports, all).text(os.Stdout); err != nil {
		return err
	}
	for _, r := range reports {
		if r.err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", r.kernel.name, r.err))
		}
	}
	if len(unsteady) > 0 {
		fmt.Printf("\n%s\n", strings.Join(unsteady, "\n"))
	}
	if len(wrong) > 0 {
		fmt.Printf("\n%s\n", strings.Join(wrong, "\n"))
		return errFailed
	}
	return nil
}

// never lists the ways that passed on no kernel.
func never(reports []*report, ways []way) []way {
	return slices.DeleteFunc(slices.Clone(ways), func(w way) bool {
		return slices.ContainsFunc(reports, func(r *report) bool { return r.cell(&w) == passed })
	})
}

// skippedTable lists the tests that the tools' full checks have left out, and why.
func skippedTable(reports []*report, all []*tool.Tool) table {
	type skip struct{ tool, test, reason string }
	kernels := map[skip][]string{}
	var order []skip
	for _, r := range reports {
		for _, tl := range all {
			for _, t := range r.of(tl.Name).skipped() {
				s := skip{tl.Name, t.Name, reason(t.Output)}
				if kernels[s] == nil {
					order = append(order, s)
				}
				kernels[s] = append(kernels[s], r.kernel.name)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b skip) int { return strings.Compare(a.tool, b.tool) })
	t := table{{"tool", "test left out", "kernels", "because"}}
	for _, s := range order {
		t = append(t, []string{s.tool, s.test, strings.Join(kernels[s], ", "), s.reason})
	}
	return t
}

// skipped lists what the check of the tool as it comes has left out: that has all tests,
// but for runs that are short as a whole.
func (r *result) skipped() []plan.Test {
	for _, c := range r.Checks {
		if c.Hook == "" && !c.Perf {
			return c.Skipped
		}
	}
	return nil
}

// reason is what a test that was skipped said last, without the place in its source.
func reason(output string) string {
	lines := strings.Split(output, "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if _, text, ok := strings.Cut(last, ".go:"); ok {
		_, last, _ = strings.Cut(text, ": ")
	}
	return last
}
