package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

const docPath = "docs/compatibility.md"

const docHead = `# Compatibility

` + "`make test-kernels`" + ` generates this file: do not edit it. The live tests of each tool run on Debian
kernels in virtual machines: first with the default attach types, then once for each other attach
type that the kernel supports, forced with ` + "`--hook`" + `, through the ring buffer and through perf
buffers (` + "`--perf-buffer`" + `). ` + "`--explain`" + ` determines what a kernel supports. The last two rows of each
table name the kernel and the commit of corescope. Tools that are missing have not been tested yet.

`

const (
	toolsHead   = "\n## Tools\n\n"
	skippedHead = "\n## Skipped tests\n\nThese tests skipped themselves and do not count as passed above.\n\n"
)

// entry is what the document has of a tool: a row, a section, and rows of skipped tests.
type entry struct{ tool, row, section, skipped string }

// writeDoc replaces what the document has of the tools of this run by the stored results. Results of
// all kernels are not replaced by results of some.
func (h *runner) writeDoc() error {
	old, err := os.ReadFile(docPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read document: %w", err)
	}
	reports, err := h.stored()
	if err != nil {
		return err
	}
	var entries []entry
	for _, t := range tools.All() {
		e := oldEntry(string(old), t.Name)
		if slices.Contains(h.tools, t) {
			if e, err = update(e, reports, t); err != nil {
				return err
			}
		}
		entries = append(entries, e)
	}
	return os.WriteFile(docPath, document(reports, entries), 0o644)
}

func update(old entry, reports []*report, t *tool.Tool) (entry, error) {
	isMissing := func(r *report) bool { return r.tools[t.Name] == nil }
	if slices.ContainsFunc(reports, isMissing) && old.isWhole() {
		progress("%s keeps the results of %s on all kernels: on this machine not all were tested", docPath, t.Name)
		return old, nil
	}
	return newEntry(reports, t)
}

// isWhole reports whether the entry has results of all kernels.
func (e entry) isWhole() bool {
	return e.section != "" && !strings.Contains(e.section, notTested)
}

// oldEntry reads the entry of a tool from the document. It is empty if the document has none.
func oldEntry(doc, tool string) entry {
	rows := func(head string) (found string) {
		for line := range strings.Lines(part(doc, head)) {
			if strings.HasPrefix(line, "| "+tool+" |") {
				found += line
			}
		}
		return found
	}
	return entry{tool, rows(toolsHead), part(doc, "\n## "+tool+"\n\n"), rows(skippedHead)}
}

// part returns the text between a heading and the next one.
func part(doc, head string) string {
	_, text, _ := strings.Cut(doc, head)
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func newEntry(reports []*report, t *tool.Tool) (entry, error) {
	variants, err := variantsOf(t)
	if err != nil {
		return entry{}, err
	}
	var b strings.Builder
	append(variantsTable(reports, variants), originRows(reports, t.Name)...).markdown(&b)
	for _, r := range reports {
		for _, f := range r.failures(t.Name) {
			fmt.Fprintf(&b, "\nFailed on %s:\n\n%s\n", r.kernel.name, indent(f))
		}
	}
	one := []*tool.Tool{t}
	return entry{t.Name, toolsTable(reports, one).rows(), b.String(), skippedTable(reports, one).rows()}, nil
}

// stored returns the stored results of the tools of this run.
func (h *runner) stored() ([]*report, error) {
	var reports []*report
	for _, k := range matrix {
		r := &report{kernel: k, tools: map[string]*result{}}
		for _, t := range h.tools {
			found, err := h.load(k.name, t.Name)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if err == nil {
				r.tools[t.Name] = found
			}
		}
		reports = append(reports, r)
	}
	return reports, nil
}

// document returns the document with these entries.
func document(reports []*report, entries []entry) []byte {
	var b bytes.Buffer
	b.WriteString(docHead)
	machinesTable(reports).markdown(&b)
	b.WriteString(toolsHead)
	toolsTable(reports, nil).markdown(&b)
	for _, e := range entries {
		b.WriteString(e.row)
	}
	for _, e := range entries {
		if e.section != "" {
			fmt.Fprintf(&b, "\n## %s\n\n%s", e.tool, e.section)
		}
	}
	b.WriteString(skippedHead)
	skippedTable(reports, nil).markdown(&b)
	for _, e := range entries {
		b.WriteString(e.skipped)
	}
	return b.Bytes()
}

// originRows returns rows with the kernel release and the commit, in the columns of variantsTable.
func originRows(reports []*report, tool string) table {
	rows := table{{"kernel", "", "", ""}, {"commit", "", "", ""}}
	for _, r := range reports {
		rows[0] = append(rows[0], cmp.Or(r.resultOf(tool).Release, notTested))
		rows[1] = append(rows[1], cmp.Or(r.resultOf(tool).Commit, notTested))
	}
	return rows
}

func machinesTable(reports []*report) table {
	t := table{{"name", "architecture", "Debian suite", "package", "cgroups"}}
	for _, r := range reports {
		cgroups := "v2"
		if r.kernel.hybrid {
			cgroups = "v1 and v2"
		}
		t = append(t, []string{r.kernel.name, r.kernel.arch, r.kernel.suite, r.kernel.pkg, cgroups})
	}
	return t
}
