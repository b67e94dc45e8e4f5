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

This file is written by ` + "`make test-kernels`" + `: do not edit it. Each tool's live tests ran on Debian's
kernels in virtual machines, once as the tool comes and then by each other way to a hook that the kernel
has, taken alone (` + "`--hook`" + `), through the ring buffer and through perf buffers (` + "`--perf-buffer`" + `). What a
kernel has is what ` + "`--explain`" + ` told on it. Each tool's last rows say which kernel that was, and which
commit of corescope. A tool that is not here was not tested yet.

`

// writeDoc writes what is known, if nothing that the document has would be missing.
func (h *house) writeDoc() error {
	old, err := os.ReadFile(docPath)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read document: %w", err)
	}
	reports, err := h.known()
	if err != nil {
		return err
	}
	var told []*tool.Tool
	for _, t := range tools.All() {
		isMissing := func(r *report) bool { return r.tools[t.Name] == nil }
		if slices.ContainsFunc(reports, isMissing) && isWhole(old, t.Name) {
			progress("%s stays as it is: it has all of %s, which was not tested on all kernels here", docPath, t.Name)
			return nil
		}
		if slices.ContainsFunc(reports, func(r *report) bool { return !isMissing(r) }) {
			told = append(told, t)
		}
	}
	text, err := document(reports, told)
	if err != nil {
		return err
	}
	return os.WriteFile(docPath, text, 0o644)
}

// isWhole tells whether the document has the tool on every kernel.
func isWhole(doc []byte, tool string) bool {
	_, section, found := bytes.Cut(doc, []byte("\n## "+tool+"\n"))
	section, _, _ = bytes.Cut(section, []byte("\n## "))
	return found && !bytes.Contains(section, []byte(notTested))
}

// known is what the newest runs have told.
func (h *house) known() ([]*report, error) {
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
		ways, err := waysOf(t)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n## %s\n\n", t.Name)
		append(waysTable(reports, ways), originRows(reports, t.Name)...).markdown(&b)
		for _, r := range reports {
			for _, f := range r.failures(t.Name) {
				fmt.Fprintf(&b, "\nFailed on %s:\n\n%s\n", r.kernel.name, indent(f))
			}
		}
	}
	b.WriteString("\n## Tests that were left out\n\nThey say so themselves, and count as nothing above.\n\n")
	skippedTable(reports, all).markdown(&b)
	return b.Bytes(), nil
}

// originRows tell what was tested, in the columns of waysTable.
func originRows(reports []*report, tool string) table {
	rows := table{{"kernel", "", "", ""}, {"commit", "", "", ""}}
	for _, r := range reports {
		rows[0] = append(rows[0], cmp.Or(r.of(tool).Release, notTested))
		rows[1] = append(rows[1], cmp.Or(r.of(tool).Commit, notTested))
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
