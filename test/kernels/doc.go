package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

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

// writeDoc writes the document from the stored results. It keeps the existing document if that has
// results which are not stored on this machine.
func (h *runner) writeDoc() error {
	old, err := os.ReadFile(docPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read document: %w", err)
	}
	reports, err := h.stored()
	if err != nil {
		return err
	}
	var tested []*tool.Tool
	for _, t := range tools.All() {
		isMissing := func(r *report) bool { return r.tools[t.Name] == nil }
		if slices.ContainsFunc(reports, isMissing) && isWhole(old, t.Name) {
			progress("%s is not updated: it has complete results of %s, but on this machine not all kernels were tested", docPath, t.Name)
			return nil
		}
		if slices.ContainsFunc(reports, func(r *report) bool { return !isMissing(r) }) {
			tested = append(tested, t)
		}
	}
	text, err := document(reports, tested)
	if err != nil {
		return err
	}
	return os.WriteFile(docPath, text, 0o644)
}

// isWhole reports whether the document has results of the tool on all kernels.
func isWhole(doc []byte, tool string) bool {
	_, section, found := bytes.Cut(doc, []byte("\n## "+tool+"\n"))
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	return found && !bytes.Contains(section, []byte(notTested))
}

// stored returns the stored results of the latest runs.
func (h *runner) stored() ([]*report, error) {
	var reports []*report
	for _, k := range matrix {
		r := &report{kernel: k, tools: map[string]*result{}}
		for _, t := range tools.All() {
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

func document(reports []*report, all []*tool.Tool) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(docHead)
	machinesTable(reports).markdown(&b)
	b.WriteString("\n## Tools\n\n")
	toolsTable(reports, all).markdown(&b)
	for _, t := range all {
		variants, err := variantsOf(t)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n## %s\n\n", t.Name)
		append(variantsTable(reports, variants), originRows(reports, t.Name)...).markdown(&b)
		for _, r := range reports {
			for _, f := range r.failures(t.Name) {
				fmt.Fprintf(&b, "\nFailed on %s:\n\n%s\n", r.kernel.name, indent(f))
			}
		}
	}
	b.WriteString("\n## Skipped tests\n\nThese tests skipped themselves and do not count as passed above.\n\n")
	skippedTable(reports, all).markdown(&b)
	return b.Bytes(), nil
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
