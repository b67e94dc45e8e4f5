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

// text returns the row for the progress output.
func (r *row) text() string {
	cells := make([]string, len(r.scores))
	for i := range r.scores {
		cells[i] = fmt.Sprintf("%-15s", r.scores[i].String())
	}
	return fmt.Sprintf("%-16s %s", r.name, strings.Join(cells, "  "))
}

// document returns the content of docs/stacks.md.
func document(rows []row, subjects []subject) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Accuracy of stack traces\n\n%s\n", introduction)
	fmt.Fprintf(&b, "Measured on %s.\n\n", machine())
	b.WriteString("| program | description |")
	for _, s := range subjects {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(subjects)) + "\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s |", r.name, r.description)
		for _, s := range r.scores {
			fmt.Fprintf(&b, " %s |", s.String())
		}
		for range len(subjects) - len(r.scores) {
			fmt.Fprintf(&b, " %s |", r.note)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n" + notes)
	return b.Bytes()
}

const introduction = "`make stacks`" + ` generates this file: do not edit it. It runs programs that spin in one function, so
that their stack is known from the source, and samples them with ` + "`profile`" + ` and its peers. Each
cell has three figures in percent:

1. full: samples with a complete stack, from the interrupted function to ` + "`main`" + `
2. found: functions of the known stack that the samples contain, on average
3. named: frames with the correct function name
`

const notes = `The peers are profile of libbpf-tools, bpftrace with ` + "`ustack`" + `, which follows frame pointers, and
bpftrace with ` + "`dw_ustack()`" + `. The latter is marked as unstable, supports only x86-64, and only
processes that are specified at the start. corescope is ` + "`profile`" + ` with default options and --pid.

A frame without a name counts as found if its address is in the function. Without any symbols, as
in chain_stripped, no tool can name functions. Mangled names count as correct. corescope limits
stacks to 512 frames, the peers to 127. Some samples of Go programs are in the Go scheduler.

If a process maps another file where it has unmapped one (dlclose, dlopen), stacks in both can have
the same addresses. They are counted together, so frames at these addresses have no name but the
reason "file replaced", and a message names the process. Single events, such as those of trace, have the
name in the file that was mapped at that time, or no name if that cannot be told. This is not
detected if perf events are not permitted, or if the kernel loses records of mappings.

The trampolines of CPython (-X perf) neither keep a frame pointer nor have unwind information.
corescope unwinds them by decoding the instruction after the call, which only adjusts the stack
pointer. "failed" means that bpftrace exited with an error, caused by the jitdump that the program
maps.

Known limits of unwind tables, on x86-64:

- Of several functions without unwind information that call each other, in a file that has some, stacks
  contain only the innermost one, even if they use frame pointers (--unwind fp shows them).
- Callers can be missing for samples in the few instructions of a function that find the caller by another
  register: those that realign the stack (r10), and those that probe a large frame (r11, -fstack-clash-protection).
- While a probe is active on a function, samples of its first instruction, which the kernel executes
  elsewhere, are [uprobes] and [incomplete], and those of its return can have the name of the next function.
- In stripped Go programs, the function that signal handlers return to has the name of the one before it.
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
