package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/corescope/corescope/internal/tool"
)

const docPath = "docs/compatibility.md"

const docHead = `# Compatibility

This file is written by ` + "`make test-kernels`" + `: do not edit it. Each tool's live tests ran on Debian's
kernels in virtual machines, once as the tool comes and then by each other way to a hook that the kernel
has, taken alone (` + "`--hook`" + `), through the ring buffer and through perf buffers (` + "`--perf-buffer`" + `). What a
kernel has is what ` + "`--explain`" + ` told on it.

`

// writeDoc writes what the whole matrix told.
func writeDoc(reports []*report, all []*tool.Tool) error {
	var b bytes.Buffer
	b.WriteString(docHead)
	machinesTable(reports).markdown(&b)
	b.WriteString("\n## Tools\n\n")
	toolsTable(reports, all).markdown(&b)
	for _, t := range all {
		ways, err := waysOf(t)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n## %s\n\n", t.Name)
		waysTable(reports, ways).markdown(&b)
		for _, r := range reports {
			for _, f := range r.failures(t.Name) {
				fmt.Fprintf(&b, "\nFailed on %s:\n\n%s\n", r.kernel.name, indent(f))
			}
		}
	}
	b.WriteString("\n## Tests that were left out\n\nThey say so themselves, and count as nothing above.\n\n")
	skippedTable(reports).markdown(&b)
	if err := os.MkdirAll("docs", 0o755); err != nil {
		return err
	}
	return os.WriteFile(docPath, b.Bytes(), 0o644)
}

func machinesTable(reports []*report) table {
	t := table{{"name", "kernel", "architecture", "Debian suite", "cgroups"}}
	for _, r := range reports {
		cgroups := "v2"
		if r.kernel.hybrid {
			cgroups = "v1 and v2"
		}
		t = append(t, []string{r.kernel.name, r.release, r.kernel.arch, r.kernel.suite, cgroups})
	}
	return t
}
