package document

import (
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/screen"
)

// manualOutput writes the section OUTPUT, which differs between tools only in names and counters.
func (t *Tool) manualOutput(p *manual.Page) {
	p.Section("OUTPUT")
	p.Text("Standard output has only rows. Single rows are written immediately, many rows in batches. " +
		"Notices go to standard error: when all hooks are attached, when events were lost, and errors.")
	p.Text("With --output json, standard output has one object per line. The key type is one of:")
	for _, line := range t.lineTypes() {
		p.Item(line[0], "", line[1])
	}
	p.Text(fmt.Sprintf("corescope schema %s prints the JSON Schema of these lines for all options; with the options of "+
		"a run appended, it prints the schema of that run, which requires the keys that all its rows have. "+
		"Keys are never removed and never change their type or meaning; new keys can be added.", t.Name))
	p.Text("Strings from the kernel or from other tasks are escaped in text as in a string constant of Go: control and " +
		`invisible characters, and bytes that are not UTF-8, as \n, \t, \a, \x1b, \xff or \u202e, and a backslash as two backslashes. CSV has the same escapes; a list of ` +
		"strings, such as arguments, is a JSON array of escaped strings in one cell. In JSON, bytes that are not UTF-8 " +
		"are replaced by U+FFFD, and the additional key KEY_base64 contains the exact bytes.")
	t.manualCounts(p)
	t.manualScreen(p)
}

// manualStacks writes how user stacks are unwound, if the tool has stacks.
func (t *Tool) manualStacks(p *manual.Page) {
	canUnwind := func(g FlagGroup) bool {
		return slices.ContainsFunc(g.Flags, func(f flags.Flag) bool { return f.Long == "unwind" })
	}
	if !slices.ContainsFunc(t.Flags, canUnwind) {
		return
	}
	p.Section("STACKS")
	p.Text("User stacks are unwound with unwind tables, so functions need no frame pointers. The tables are derived from " +
		".eh_frame, which nearly all programs and libraries have, and from the tables of Go programs (1.18 and later). " +
		"The table of a file is created when a process maps the file or when it first appears in a stack, which takes " +
		"1 to 200 ms, and is used for all processes that map the file. With --pid and a single process, the tables of " +
		"all its files are created before the start.")
	p.Text("Without a table, as in the code of JIT compilers, the unwinder follows the frame pointer, if it points up the stack and to a return address. " +
		"On x86-64, in a file with a table, it first searches the stack of code that the table lacks, such as hand-written assembly, for the return address, and checks it against the called code and the frame above; text with --address marks such frames. If several functions that the table lacks call each other, the stack can contain only the innermost one of them. It stops at an address that is not in an executable mapping. If it stops before the outermost frame, because code such as that of a JIT compiler has neither a table nor a frame pointer, the last frame is called [incomplete]; a stack with more frames than --perf-max-stack-depth ends in [truncated]. 32-bit programs are unwound by the kernel, which follows frame pointers without such checks. " +
		"A thread has no user stack while it executes a new program or ends.")
	p.Text("If a process unmaps a file and maps another one at the same address, as dlclose(3) and dlopen(3) do, stacks in both can have the same addresses and are then counted together. " +
		"Frames at such addresses have no name but the reason \"file replaced\", and a message names the process; frames of single events have no name if the file that was mapped at that time cannot be told. " +
		"This is not detected if perf events are not permitted or if the kernel loses records of mappings.")
	p.Text("Frames that have an address in JSON (with --address or --offset in tools that count) also state how they were " +
		"unwound: by a frame pointer (fp), by .eh_frame (eh), by the tables of a Go program (go), from the registers " +
		"that the kernel saved for a signal handler (signal), by the code that follows a call (code), by searching the stack " +
		"of code without unwind information, such as hand-written assembly, for a return address (search), or as the " +
		"caller of a function that was just entered (entry).")
	p.Text("All tables together use up to 1/64 of the machine's memory, at least 64 MB and at most 512 MB, or what " +
		"--unwind-memory allows. Memory is allocated as tables are made, with 4 bytes for each address where a frame " +
		"changes: 0.1 MB for a C library, 4 MB for libLLVM. If more is needed, the least recently used tables are " +
		"evicted. The table of one file uses at most half of the memory, and at most 32 MB. A file whose table does " +
		"not fit is reported, and its functions are unwound by frame pointers.")
}

// manualScreen writes how a table is displayed on a terminal.
func (t *Tool) manualScreen(p *manual.Page) {
	if !t.Screen {
		return
	}
	p.Section("SCREEN")
	p.Text("If standard output is a terminal, text output is a screen of the size of the window, redrawn at the end of " +
		"each interval. Keys are read from the terminal, not from standard input. The last screen remains after the end. " +
		"Otherwise, and with --noclear, the tables are printed one below the other.")
	for _, k := range screen.Manual() {
		p.Item(k[0], "", k[1])
	}
}

func (t *Tool) lineTypes() [][2]string {
	rows := map[string][2]string{
		output.KindEvent:     {output.KindEvent, "One row."},
		output.KindRow:       {output.KindRow, "One row of an interval that ended at time and took interval_ns. All rows of an interval have the same time and interval_ns."},
		output.KindHistogram: {output.KindHistogram, "One histogram of an interval: key, unit, statistics, and the buckets that are not empty, with lo <= value < hi."},
	}[t.Kind]
	return [][2]string{
		{"ready", "The first line, when all hooks are attached: the attach type of each hook."},
		rows,
		{"lost", "Events lost since the previous line of this type, by loss reason; at most once a second."},
		{"summary", "The last line: the number of events, the total number of lost events by loss reason, and other counters."},
	}
}

func (t *Tool) manualCounts(p *manual.Page) {
	if len(t.Lost) > 0 {
		p.Text("Lost events are counted and reported by loss reason: " + strings.Join(t.Lost, ", ") + ". corescope(1) explains them.")
	}
	if len(t.Counters) > 0 {
		p.Text("Other counters, in the summary: " + strings.Join(t.Counters, ", ") + ".")
	}
}

func manualFiles(p *manual.Page) {
	p.Section("ENVIRONMENT")
	p.Item("CORESCOPE_BTF", "", "File with the BTF of the kernel, like --btf.")
	p.Section("FILES")
	p.Item("/sys/kernel/btf/vmlinux", "", "BTF of the running kernel. The programs are adapted to its types when they are loaded.")
	p.Item("/sys/fs/cgroup", "", "The cgroups of --cgroup, --container and the columns with containers, pods and units.")
}
