// Package funccount counts function calls and hits of tracepoints and USDT probes.
package funccount

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh funccount.bpf.c

type options struct {
	Pattern   string         `pos:"pattern" help:"functions, tracepoints or USDT probes, such as vfs_*, c:malloc, t:block:*, u:c:*"`
	Every     flags.Duration `flag:"interval,i" pos:"interval" arg:"TIME" min:"1ms" help:"time between reports" unset:"one report at the end by default"`
	Timestamp bool           `flag:"timestamp,T" help:"no effect, for compatibility with BCC: each report has its time"`
	Regexp    bool           `flag:"regexp,r" help:"the pattern is a regular expression, which is matched at the start of a name"`
	CPU       int32          `flag:"cpu,c" arg:"N" min:"-1" id:"cpu" bpf:"targ_cpu" help:"only on this CPU; -1 means all"`
	Rows      uint64         `flag:"rows" arg:"N" min:"1" help:"show only the first N rows of each interval"`
	Debug     bool           `flag:"debug,D" sets:"verbose=true" help:"same as --verbose, for compatibility with BCC"`
	Address   bool           `flag:"address" help:"show the address of each kernel function, in a column before its name"`
	Sort      string         `flag:"sort,s" arg:"COLUMN" help:"sort by this column, greatest first (+COLUMN: least first); default: count"`
}

// Mirrors of struct table_key and struct table_value.
type (
	key    struct{ Target uint32 }
	counts struct{ Count uint64 }
)

type row struct {
	Address address `json:"address" col:"ADDR,width=16" help:"address of a kernel function, with --address; absent for others, and without CAP_SYSLOG"`
	Func    string  `json:"func" col:"FUNC,width=40" help:"name of the function; of a tracepoint category/event"`
	Module  string  `json:"module" col:"MODULE,width=30" help:"file of a user function, or module of a kernel function"`
	Count   uint64  `json:"count" col:"COUNT,width=10,right" help:"calls in the interval, or returns if the pattern selects returns; calls are counted at entry"`
}

// address is an address that is absent if it is 0.
type address struct{ value.Address }

// Absent reports whether the address is unknown.
func (v *address) Absent() bool { return v.Address == 0 }

// Tool is the definition of funccount.
var Tool = tool.Define(tool.Spec{
	Name:     "funccount",
	Also:     []tool.Alias{{Name: "vfscount", Args: []string{"--address", "vfs_*"}}},
	Category: "function",
	Summary:  "Count calls of kernel and user functions, tracepoints and USDT probes",
	Description: `Counts how often each function or tracepoint with a name, or matching a pattern, is hit.

vfs_read and vfs_* are kernel functions, c:malloc and c:*alloc are functions of the C library, /usr/bin/bash:readline is a function of a program, t:sched:* are tracepoints, u:c:setjmp is a USDT probe in the library. The prefix r: counts returns of a function. In a pattern * matches any text and ? any character. The syntaxes of BCC, bpftrace and ksnoop are accepted.

` + target.Manual + `

` + tool.ReturnsManual + `

All matches are counted, even hundreds of them: with a single kprobe_multi (kernel 5.18) or uprobe_multi (kernel 6.6) link if the kernel supports it, otherwise with one probe each. Functions that cannot be probed are reported. Functions that are not hit are not shown.

Filters such as --pid test the current task; in an interrupt that is the interrupted task.`,
	Peers: []string{
		"The most frequent function comes first; in BCC it comes last.",
		"-D (BCC: print the program) is -v; --explain shows how functions are attached.",
		"-T has no effect: each report has its time.",
		"vfscount is funccount --address 'vfs_*'. With an interval it counts anew in each, as in BCC. It counts all functions of that prefix that the kernel can trace, including those of modules; a call that the compiler has inlined is no call, and a name with a suffix, such as vfs_rmdir.part.0, is a part of a function that the compiler has split off.",
	},
	Overhead: "The BPF program takes 160 ns per call. Attachment costs more: in user functions a trap extended a call of 2 ns to 13 to 20 us on a busy virtual machine (500,000 calls). Consider this before counting c:* system-wide.",
	Examples: []string{
		"funccount 'vfs_*'                        # calls of VFS functions, until Ctrl-C",
		"funccount -i 1 -d 10 't:block:*'         # block tracepoints, each second, for ten seconds",
		"funccount -p 1234 c:malloc               # malloc calls of one process",
		"funccount --address 'vfs_*' 5            # the same as vfscount 5: every 5 seconds, with addresses",
		"funccount -r '(vfs|ksys)_(read|write)$'  # four functions",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "duration": "d"},
}, options{CPU: -1, Sort: "count"}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	var places []target.Place
	t := &source.Table[key, counts, row]{
		Rounds:  source.Rounds{Every: o.Every},
		Ranking: source.Ranking{Sort: o.Sort, Rows: o.Rows},
		Columns: []string{"func", "count"},
		Label: func(k *key, _ *counts) row {
			p := places[k.Target]
			r := row{Func: p.Name, Module: p.Module}
			if o.Address {
				r.Address.Address = value.Address(p.Address)
			}
			return r
		},
		Fill: func(r *row, c *counts, _ time.Duration) { r.Count = c.Count },
	}
	if o.Address {
		t.Columns = append([]string{"address"}, t.Columns...)
	} else {
		t.Off = []string{"address"}
	}
	t.Resolve = func(p *tool.Plan, _ *tool.Kernel) error {
		pids, err := env.Processes()
		if err != nil {
			return err
		}
		finder := target.Finder{PIDs: pids, Note: p.Note}
		spec, found, err := finder.FindText(o.Pattern, o.Regexp)
		if err != nil {
			return flags.Usage(err)
		}
		p.Instances, places = target.Instances(found, spec.IsPattern())
		return nil
	}
	return t, nil
}
