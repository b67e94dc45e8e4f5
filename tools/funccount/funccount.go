// Package funccount counts calls of functions and hits of tracepoints.
package funccount

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh funccount.bpf.c

type options struct {
	Pattern   string         `pos:"pattern" help:"functions, tracepoints or USDT probes, as vfs_*, c:malloc, t:block:*, u:c:*"`
	Every     flags.Duration `flag:"interval,i" arg:"TIME" help:"time between reports; one report at the end without it"`
	Timestamp bool           `flag:"timestamp,T" help:"for BCC's sake: each report has its time"`
	Regexp    bool           `flag:"regexp,r" help:"the pattern is a regular expression, which a name must match from its beginning on"`
	CPU       int32          `flag:"cpu,c" arg:"N" bpf:"targ_cpu" help:"only on this CPU; -1 is every one"`
	Rows      uint64         `flag:"rows" arg:"N" help:"show only the first N rows of each interval"`
	Sort      string         `flag:"sort,s" arg:"COLUMN" help:"sort by this column, the greatest first (+COLUMN: the least), not by the count"`
}

// key is struct table_key, counts struct table_value.
type (
	key    struct{ Target uint32 }
	counts struct{ Count uint64 }
)

type row struct {
	Func   string `json:"func" col:"FUNC,width=40" help:"name of the function, or of the tracepoint as category/event"`
	Module string `json:"module" col:"MODULE,width=30" help:"file of a user function; module of a kernel function that is in one"`
	Count  uint64 `json:"count" col:"COUNT,width=10,right" help:"calls, or returns where the pattern asks for these, in the interval; each is counted as it begins"`
}

// Tool is funccount.
var Tool = tool.Define(tool.Spec{
	Name:     "funccount",
	Category: "function",
	Summary:  "Count calls of kernel or user functions, and hits of tracepoints",
	Description: `Counts how often each function or tracepoint is hit that has the name, or that matches the pattern.

vfs_read and vfs_* are kernel functions, c:malloc and c:*alloc are functions of the C library, /usr/bin/bash:readline is one of a program, t:sched:* are tracepoints, u:c:setjmp is a probe that the library has built in (USDT). In front of a function r: counts returns. In a pattern * stands for any text and ? for any character. The spellings of BCC, bpftrace and ksnoop are understood.

All that match are counted, hundreds at once: by one kprobe_multi (5.18) or uprobe_multi (6.6) where the kernel has that, else by a probe each. What cannot have a probe is named. Those that are not hit are not shown.

The filters, as --pid, are of the current task; in an interrupt that is the one which was interrupted.`,
	Peers: []string{
		"The most frequent function comes first, where BCC's comes last.",
		"-D (BCC: show the program) is not there; --verbose and --explain say how the functions are attached.",
		"-T changes nothing: each report has its time.",
	},
	Overhead: "The program takes 160 ns a call. What leads to it is more: in user functions a trap, which made a call of 2 ns one of 13 to 20 us on a busy virtual machine (500,000 calls). Think of that before you count c:* system-wide.",
	Examples: []string{
		"funccount 'vfs_*'                        # calls of the file system's functions, until Ctrl-C",
		"funccount -i 1 -d 10 't:block:*'         # tracepoints of block devices, each second, for ten seconds",
		"funccount -p 1234 c:malloc               # mallocs of one process",
		"funccount -r '(vfs|ksys)_(read|write)$'  # four functions",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{CPU: -1, Sort: "count"}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	var places []target.Place
	t := &tool.Table[key, counts, row]{
		Rounds:  tool.Rounds{Every: o.Every},
		Ranking: tool.Ranking{Sort: o.Sort, Rows: o.Rows},
		Columns: []string{"func", "count"},
		Label: func(k *key, _ *counts) row {
			p := places[k.Target]
			return row{Func: p.Name, Module: p.Module}
		},
		Fill: func(r *row, c *counts, _ time.Duration) { r.Count = c.Count },
	}
	t.Resolve = func(p *tool.Plan, _ *tool.Kernel) error {
		spec, found, err := target.Find(o.Pattern, o.Regexp)
		if err != nil {
			return flags.Usage(err)
		}
		p.Instances, places = target.Instances(found, spec.IsPattern())
		return nil
	}
	return t, nil
}
