package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/tools"
)

const docPath = "docs/compatibility.md"

const docHead = `# Compatibility

This file is written by ` + "`make test-kernels`" + `: do not edit it. Each tool's live tests ran on Debian's
kernels in virtual machines, once as the tool comes and then by each other way to a hook that the kernel
has, taken alone (` + "`--hook`" + `), through the ring buffer and through perf buffers (` + "`--perf-buffer`" + `). What a
kernel has is what ` + "`--explain`" + ` told on it. Each tool's last rows say which kernel that was, and which
commit of corescope.

`

// writeDoc writes what is known, if every tool had its turn on every kernel.
func (h *house) writeDoc() error {
	all := tools.All()
	var reports []*report
	for _, k := range matrix {
		r := &report{kernel: k, tools: map[string]*result{}}
		for _, t := range all {
			found, err := h.load(k.name, t.Name)
			if errors.Is(err, fs.ErrNotExist) {
				progress("%s stays as it is: %s was not tested on %s", docPath, t.Name, k.name)
				return nil
			}
			if err != nil {
				return err
			}
			r.tools[t.Name] = found
		}
		reports = append(reports, r)
	}
	text, err := document(reports, all)
	if err != nil {
		return err
	}
	return os.WriteFile(docPath, text, 0o644)
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
		rows[0] = append(rows[0], r.of(tool).Release)
		rows[1] = append(rows[1], r.of(tool).Commit)
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
