package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func percent(share float64) string { return fmt.Sprintf("%.0f", share) }

// text is the row as it is told while the programs run.
func (r *row) text() string {
	cells := make([]string, len(r.scores))
	for i := range r.scores {
		cells[i] = fmt.Sprintf("%-15s", r.scores[i].words())
	}
	return fmt.Sprintf("%-16s %s", r.name, strings.Join(cells, "  "))
}

// document is docs/stacks.md.
func document(rows []row, subjects []subject) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# True stacks\n\n%s\n", introduction)
	fmt.Fprintf(&b, "Measured on %s. `make stacks` does it again.\n\n", machine())
	b.WriteString("| program | what it is |")
	for _, s := range subjects {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(subjects)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.name, r.what)
		for _, s := range r.scores {
			fmt.Fprintf(&b, " %s |", s.words())
		}
		for range len(subjects) - len(r.scores) {
			fmt.Fprintf(&b, " %s |", r.note)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n" + notes)
	return b.Bytes()
}

const introduction = `Programs that spin in one place, of which the source tells who called whom, seen by ` + "`profile`" + ` and
by its peers. In each cell: the share of samples whose stack is complete, from the function that ran to ` + "`main`" + `; how much
of the way there was found on average; and how many of the frames that were shown have their function's name.
All in per cent.
`

const notes = `The peers are libbpf-tools' profile, and bpftrace with ` + "`ustack`" + `, which follows frame pointers, and with its ` + "`dw_ustack()`" + `, which is
marked as unstable, is for x86-64 and has to be told the processes as it starts. Ours is ` + "`profile`" + ` as it is by itself, with --pid.

A frame without a name counts as found where its address tells which function it is in; with no symbols anywhere, as in
chain_stripped, no tool can name it. Names that compilers have mangled count as right. Stacks end at 512
frames, those of the peers at 127. Of the samples of Go's programs a few are in its scheduler.

CPython's own code for a function (-X perf) keeps no frame pointer and has no tables; that it only leaves room on the stack is seen by
the code itself. Where it says failed, bpftrace has ended with an error of its own, on the jitdump that the program maps.
`

func machine() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return time.Now().UTC().Format(time.DateOnly)
	}
	cpu := ""
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, val, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			cpu = ", " + strings.TrimSpace(val)
		}
	}
	return fmt.Sprintf("%s, Linux %s %s%s", time.Now().UTC().Format(time.DateOnly),
		unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Machine[:]), cpu)
}
