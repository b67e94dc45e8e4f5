package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// document renders docs/truth.md for the tree below root. It returns an error if a named test does not exist.
func document(root string, results []result) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(intro)
	b.WriteString("\n| tool | program | quantity | reference | tool's number | reference's number | bound |\n|---|---|---|---|---:|---:|---|\n")
	for _, r := range results {
		for _, f := range r.figures {
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n",
				r.tool, code(r.program), f.what, code(r.reference), number(f.ours), number(f.reference), bound(f))
		}
	}
	b.WriteString("\n## Not compared in this run\n\n| tool | program | reference | reason |\n|---|---|---|---|\n")
	for _, r := range results {
		if r.err != nil {
			reason, _ := strings.CutPrefix(r.err.Error(), errMissing.Error()+": ")
			if !errors.Is(r.err, errMissing) {
				reason = "FAILED: " + reason
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.tool, code(r.program), code(r.reference), strings.ReplaceAll(reason, "\n", " "))
		}
	}
	table, err := documentElsewhere(root)
	b.Write(table)
	return b.Bytes(), err
}

const intro = `# Comparison with independent references

Each tool observes a run of a real program. An independent reference observes the same run: another
tracer, the program's own log, or a counter of the kernel. The table shows both numbers. The bound is
the largest difference that counts as correct, with the reason. ` + "`make truth`" + ` generates this page and
fails if a number is outside its bound.
`

func bound(f figure) string {
	text := "equal"
	if f.slack > 0 {
		text = "± " + number(f.slack) + ": " + f.why
	}
	if f.isOutside() {
		text += " **OUTSIDE**"
	}
	return text
}

func code(s string) string { return "`" + s + "`" }
