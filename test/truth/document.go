package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// document renders docs/truth.md for the tree below root. Tools without a result keep the lines that they
// have in old. It returns an error if a named test does not exist.
func document(root string, old []byte, results []result) ([]byte, error) {
	var figures, missing bytes.Buffer
	kept := linesOf(old)
	for _, tool := range toolsOf(comparisons()) {
		isNew := false
		for _, r := range results {
			if r.tool == tool {
				isNew = true
				r.write(&figures, &missing)
			}
		}
		if !isNew {
			figures.WriteString(kept[0][tool])
			missing.WriteString(kept[1][tool])
		}
	}
	var b bytes.Buffer
	b.WriteString(intro)
	b.WriteString("\n| tool | program | quantity | reference | tool's number | reference's number | bound |\n|---|---|---|---|---:|---:|---|\n")
	b.Write(figures.Bytes())
	b.WriteString(notCompared + "\n| tool | program | reference | reason |\n|---|---|---|---|\n")
	b.Write(missing.Bytes())
	table, err := documentElsewhere(root)
	b.Write(table)
	return b.Bytes(), err
}

const notCompared = "\n## Not compared in this run\n"

// write writes the lines of a result: its figures, or why there are none.
func (r result) write(figures, missing *bytes.Buffer) {
	for _, f := range r.figures {
		fmt.Fprintf(figures, "| %s | %s | %s | %s | %s | %s | %s |\n",
			r.tool, code(r.program), f.what, code(r.reference), number(f.ours), number(f.reference), bound(f))
	}
	if r.err == nil {
		return
	}
	reason, isMissing := strings.CutPrefix(r.err.Error(), errMissing.Error()+": ")
	reason, _, _ = strings.Cut(reason, " (the hook needs ") // in the manual of the tool
	if !isMissing && !errors.Is(r.err, errMissing) {
		reason = "FAILED: " + reason
	}
	fmt.Fprintf(missing, "| %s | %s | %s | %s |\n", r.tool, code(r.program), code(r.reference), strings.ReplaceAll(reason, "\n", " "))
}

// toolsOf returns the tools in their first order.
func toolsOf(all []comparison) (tools []string) {
	for _, c := range all {
		if !slices.Contains(tools, c.tool) {
			tools = append(tools, c.tool)
		}
	}
	return tools
}

// linesOf returns the lines of a document by tool: those with figures, and those without.
func linesOf(text []byte) (lines [2]map[string]string) {
	lines[0], lines[1] = map[string]string{}, map[string]string{}
	first, rest, _ := strings.Cut(string(text), notCompared)
	second, _, _ := strings.Cut(rest, "\n## ")
	for i, part := range []string{first, second} {
		for line := range strings.Lines(part) {
			if cells := strings.Split(line, " | "); len(cells) > 3 {
				lines[i][strings.TrimPrefix(cells[0], "| ")] += line
			}
		}
	}
	return lines
}

const intro = `# Comparison with independent references

Each tool observes a run of a real program. An independent reference observes the same run: another
tracer, the program's own log, or a counter of the kernel. The table shows both numbers. The bound is
the largest difference that counts as correct, with the reason. ` + "`make truth`" + ` generates this page and
fails if a number is outside its bound; it uses the runtimes and servers that scripts/languages.sh and
scripts/databases.sh install. Other names of a tool, such as ext4slower for fsslower, have no lines of
their own.
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
