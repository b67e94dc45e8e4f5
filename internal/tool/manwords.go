package tool

import (
	"fmt"
	"strings"

	"github.com/corescope/corescope/internal/manual"
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
}

func (f *Facts) lineTypes() [][2]string {
	rows := [2]string{kindEvent, "One row."}
	if f.Kind == kindHistogram {
		rows = [2]string{kindHistogram, "One distribution of one interval: key, unit, statistics, and the buckets that are not empty, with lo <= value < hi."}
	}
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
