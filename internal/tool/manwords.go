package tool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/screen"
)

// manualOutput writes what is the same of every tool but for its name.
func (f *Facts) manualOutput(p *manual.Page) {
	p.Section("OUTPUT")
	p.Text("Standard output has rows and nothing else. They are written at once when there are few, in batches when there are many. " +
		"Standard error has a line when all hooks are attached, one when something was lost, and errors.")
	p.Text("With --output json there is one object a line, all on standard output, told apart by the key type:")
	for _, t := range f.lineTypes() {
		p.Item(t[0], "", t[1])
	}
	p.Text(fmt.Sprintf("corescope schema %s prints the JSON Schema of these lines; with the options of a run behind it, of that run's. "+
		"No key is ever taken away, nor given another type or meaning; new ones may come.", f.Name))
	p.Text("Bytes that come from the kernel or from other tasks reach a terminal escaped: control and invisible characters, " +
		`and bytes that are not UTF-8, as \x1b or \u202e, a backslash as two. CSV has the same escapes. In JSON bytes that are not UTF-8 ` +
		"are U+FFFD, and beside KEY there is KEY_base64 with the bytes themselves.")
	f.manualCounts(p)
	f.manualScreen(p)
}

// manualStacks says how stacks of processes are found.
func (f *Facts) manualStacks(p *manual.Page) {
	isWalked := func(g FlagGroup) bool {
		return slices.ContainsFunc(g.Flags, func(f flags.Flag) bool { return f.Long == "unwind" })
	}
	if !slices.ContainsFunc(f.Flags, isWalked) {
		return
	}
	p.Section("STACKS")
	p.Text("The stacks of processes are walked by what compilers say of each function, so that functions need no frame pointers: in .eh_frame, " +
		"which nearly all programs and libraries have, and in the tables that Go programs (1.18 and later) have of their own. " +
		"It is read as the first stack of a process comes, with --pid of one process before the first. " +
		"Frame pointers are followed until that is done, which takes 1 to 200 ms for a file that no process had before, " +
		"through code that says nothing of itself, as that of JIT compilers, and in 32-bit programs.")
	p.Text("Where JSON has the address of a frame, in tools that count with --address or --offset, it has how the frame was found, too: by a frame pointer (fp), by .eh_frame (eh), by the tables of a Go program (go), " +
		"from the registers that the kernel saved for a signal's handler (signal), by the code that follows a call (code), or as the caller of a function that has just begun (entry).")
	p.Text("All tables together take 16 MB of the kernel's memory. What finds no room in there, and that is said, is walked by frame pointers.")
}

// manualScreen says how a table looks on a terminal.
func (f *Facts) manualScreen(p *manual.Page) {
	if !f.Screen {
		return
	}
	p.Section("SCREEN")
	p.Text("Where text goes to a terminal, it is a screen that is drawn again with each interval, as large as the window. " +
		"Standard input may be anything: keys are read from the terminal. The last that was seen stays there at the end. " +
		"Anywhere else, and with --noclear, the tables are printed one below the other.")
	for _, k := range screen.Manual() {
		p.Item(k[0], "", k[1])
	}
}

func (f *Facts) lineTypes() [][2]string {
	rows := map[string][2]string{
		kindEvent:     {kindEvent, "One row."},
		kindRow:       {kindRow, "One row of one interval, which ended at time and was interval_ns long. All rows of an interval have the same of both."},
		kindHistogram: {kindHistogram, "One distribution of one interval: key, unit, statistics, and the buckets that are not empty, with lo <= value < hi."},
	}[f.Kind]
	return [][2]string{
		{"ready", "The first line, once every hook is attached: which way was taken to each."},
		rows,
		{"lost", "What was lost since the last such line, by reason; once a second at most."},
		{"summary", "The last line: how many events there were, what was lost in all, and the other counters."},
	}
}

func (f *Facts) manualCounts(p *manual.Page) {
	if len(f.Lost) > 0 {
		p.Text("Everything lost is counted. The reasons: " + strings.Join(f.Lost, ", ") + ".")
	}
	if len(f.Counters) > 0 {
		p.Text("Counted beside that, in the summary: " + strings.Join(f.Counters, ", ") + ".")
	}
}

func manualFiles(p *manual.Page) {
	p.Section("ENVIRONMENT")
	p.Item("CORESCOPE_BTF", "", "BTF of the kernel, as --btf.")
	p.Section("FILES")
	p.Item("/sys/kernel/btf/vmlinux", "", "The kernel's own description of its types, to which the programs are fitted as they are loaded.")
	p.Item("/sys/fs/cgroup", "", "Where --cgroup, --container and the columns of containers, pods and units look.")
}
