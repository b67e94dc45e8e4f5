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

// verdict returns the result of a check in one line.
func verdict(c *plan.Check) string {
	counts := fmt.Sprintf("%d passed, %d failed, %d skipped, %.0f s", c.Passed, len(c.Failed), len(c.Skipped), c.Seconds)
	if c.OK() {
		return "pass: " + counts
	}
	return "FAIL: " + counts
}

// complaint returns the error and the failed tests of a check.
func complaint(c *plan.Check) string {
	var lines []string
	if c.Error != "" {
		lines = append(lines, c.Error)
	}
	for _, t := range c.Failed {
		if t.Output != "" { // otherwise its subtests have the reason
			lines = append(lines, t.Name+": "+t.Output)
		}
	}
	return strings.Join(lines, "\n")
}

func indent(s string) string {
	return "\t" + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n\t")
}

// failures lists the failures of the tool on the report's kernel.
func (r *report) failures(tool string) []string {
	var all []string
	found := r.resultOf(tool)
	if found.Error != "" {
		all = append(all, found.Error)
	}
	for _, w := range found.Variants {
		if w.Refused() {
			all = append(all, fmt.Sprintf("hook %s=%s: %s", w.Hook, w.Kind, w.Result))
		}
	}
	for _, c := range found.Checks {
		if !c.OK() {
			all = append(all, fmt.Sprintf("%s: %s", &c, complaint(&c)))
		}
	}
	return all
}

// unsteady lists the tool's tests that failed first and passed when repeated.
func (r *report) unsteady(tool string) []plan.Test {
	var all []plan.Test
	for _, c := range r.resultOf(tool).Checks {
		all = append(all, c.Unsteady...)
	}
	return all
}

// conclude prints the tables, and then all failures. It returns an error that names the tool and
// the kernel of each failure. With isWhole, an attach type that passed on no kernel is a failure.
func conclude(reports []*report, all []*tool.Tool, isWhole bool) error {
	var unsteady, wrong, places []string
	for _, t := range all {
		variants, err := variantsOf(t)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s\n", t.Name)
		if err := variantsTable(reports, variants).text(os.Stdout); err != nil {
			return err
		}
		for _, r := range reports {
			for _, c := range r.resultOf(t.Name).Checks {
				for _, key := range slices.Sorted(maps.Keys(c.Attrs)) {
					fmt.Printf("%s on %s: %s is %s\n", &c, r.kernel.name, key, c.Attrs[key])
				}
			}
			for _, u := range r.unsteady(t.Name) {
				unsteady = append(unsteady, fmt.Sprintf("%s on %s, passed the second time: %s: %s", t.Name, r.kernel.name, u.Name, u.Output))
			}
			for _, f := range r.failures(t.Name) {
				place := t.Name + " on " + r.kernel.name
				places = append(places, place)
				wrong = append(wrong, place+": "+f)
			}
		}
		for _, w := range never(reports, variants) {
			line := fmt.Sprintf("not exercised: %s %s=%s, buffer %s", w.tool, w.hook, w.kind, w.buffer())
			if isWhole {
				places = append(places, fmt.Sprintf("%s %s=%s on all kernels", w.tool, w.hook, w.kind))
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
			places = append(places, "machine "+r.kernel.name)
			wrong = append(wrong, fmt.Sprintf("machine %s: %v", r.kernel.name, r.err))
		}
	}
	if len(unsteady) > 0 {
		fmt.Printf("\n%s\n", strings.Join(unsteady, "\n"))
	}
	if len(wrong) > 0 {
		fmt.Printf("\n%s\n", strings.Join(wrong, "\n"))
		return fmt.Errorf("%w: %s", errFailed, strings.Join(slices.Compact(places), ", "))
	}
	return nil
}

// never lists the attach types that passed on no kernel.
func never(reports []*report, variants []variant) []variant {
	return slices.DeleteFunc(slices.Clone(variants), func(w variant) bool {
		return slices.ContainsFunc(reports, func(r *report) bool { return r.cell(&w) == passed })
	})
}

// skippedTable lists the tests that were skipped in the complete checks, and the reasons.
func skippedTable(reports []*report, all []*tool.Tool) table {
	type skip struct{ tool, test, reason string }
	kernels := map[skip][]string{}
	var order []skip
	for _, r := range reports {
		for _, tl := range all {
			for _, t := range r.resultOf(tl.Name).skipped() {
				s := skip{tl.Name, t.Name, reason(t.Output)}
				if kernels[s] == nil {
					order = append(order, s)
				}
				kernels[s] = append(kernels[s], r.kernel.name)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b skip) int { return strings.Compare(a.tool, b.tool) })
	t := table{{"tool", "test", "kernels", "reason"}}
	for _, s := range order {
		t = append(t, []string{s.tool, s.test, strings.Join(kernels[s], ", "), s.reason})
	}
	return t
}

// skipped lists the skipped tests of the check with default attach types, which runs all tests
// unless the whole run is short.
func (r *result) skipped() []plan.Test {
	for _, c := range r.Checks {
		if c.Hook == "" && !c.Perf {
			return c.Skipped
		}
	}
	return nil
}

// reason returns the last line of a skipped test's output, without the position in the source.
func reason(output string) string {
	lines := strings.Split(output, "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	if _, text, ok := strings.Cut(last, ".go:"); ok {
		_, last, _ = strings.Cut(text, ": ")
	}
	return last
}
