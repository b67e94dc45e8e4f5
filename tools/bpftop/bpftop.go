// Package bpftop shows what BPF programs cost.
package bpftop

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh bpftop.bpf.c

type options struct {
	tool.Top
	Delay flags.Duration `flag:"delay,d" arg:"TIME" help:"the interval, as an option"`
}

// key is struct table_key.
type key struct{ ID uint32 }

// counts is struct prog_counts of prog.bpf.h.
type counts struct{ Runs, RunNs, Misses uint64 }

// total is a number that is read and not counted.
type total uint64

// program is struct program.
type program struct {
	Total                   struct{ Runs, RunNs, Misses total }
	LoadNs, CgroupID        total
	Type, PID, UID, Holders uint32
	Comm                    value.Comm
	Name                    [64]byte
}

// entry is struct table_value.
type entry struct {
	Counts  counts
	Program program
}

type row struct {
	ID        uint32        `json:"id" col:"ID,width=6" help:"its id, as bpftool and bpflist have it"`
	Type      string        `json:"bpf_type" col:"TYPE,width=16" help:"its type: the kernel's name, without what all begin with"`
	Name      value.Name    `json:"name" col:"NAME,width=24" help:"name of its function, or the 15 bytes of it that the kernel keeps where the program has no BTF"`
	PID       value.Count   `json:"pid" col:"PID,width=7" help:"process that holds it: the first with a descriptor of it, or of a link that has it; absent where none has"`
	UID       value.Count   `json:"uid" col:"UID,width=6" help:"the holder's real user id, in the initial user namespace"`
	Comm      value.Name    `json:"comm" col:"COMM,width=16" help:"the holder's name"`
	Holders   uint32        `json:"holders" col:"HOLD,width=4,right" help:"descriptors of it, and of links that have it, in all processes"`
	Rate      value.Rate    `json:"runs_per_second" col:"EVENTS/s,width=9,right" help:"runs, by the length of the interval"`
	Mean      value.Mean    `json:"mean_ns" col:"AVG_NS,width=9,right" help:"mean time of a run in the interval; absent where there was none"`
	CPU       value.Percent `json:"cpu_percent" col:"CPU%,width=7,right" help:"share of one CPU that its runs took of the interval"`
	Runs      uint64        `json:"runs" col:"RUNS,width=10,right" help:"times that it ran in the interval"`
	RunTime   uint64        `json:"run_ns" col:"RUN_NS,width=12,right" help:"time that these took"`
	Misses    uint64        `json:"misses" col:"MISSES,width=6,right" help:"times in the interval that it was left out, as it was running on that CPU already; from 5.12 on"`
	TotalRuns uint64        `json:"total_runs" col:"TOTAL,width=12,right" help:"times that it ran since it was loaded, while the kernel was measuring"`
	TotalMean value.Mean    `json:"total_mean_ns" col:"TOTAL_AVG_NS,width=12,right" help:"mean time of all these; absent where there are none"`
	CgroupID  uint64        `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"id of the holder's cgroup: inode of its directory"`
}

// Tool is bpftop.
var Tool = tool.Define(tool.Spec{
	Name:     "bpftop",
	Category: "process",
	Summary:  "Show what BPF programs cost",
	Description: `Shows the BPF programs that are loaded, each second: how often they ran, how long a run took and their share of a CPU, those that cost most first. The programs of this very run are among them; its process holds them.

The kernel counts, for as long as this runs (BPF_ENABLE_STATS): nothing of it stays on. An interval is the difference of two readings of these counts. What a program did between its last reading and its end is counted too, as it is freed. Of a program that is loaded and gone between two readings nothing can be known but that there was one: the summary counts these (unseen). A program that is let go in the last moment of the run may lack what it did since the last reading.

Before 5.19 the counts can only be read where /proc/kallsyms has the kernel's variables (CONFIG_KALLSYMS_ALL); CAP_SYSLOG is for that.`,
	Peers: []string{
		"Options and columns of Netflix' bpftop: -d; TOTAL_AVG_NS and others are with --columns. Its graphs are not there.",
		"A program's share is that of one CPU, as in Netflix' bpftop.",
		"Holders are those of links too: what loads a program often keeps only the link.",
		"A run of 0 ns is none: the kernel measures programs where it runs them, so those that it inlines, or runs as part of others, are not there by themselves.",
		"JSON and CSV have all programs; --rows (20 in text) limits them too if given.",
	},
	Overhead: `While this runs, each run of each BPF program of the machine takes longer, as the kernel looks at the clock twice: an empty one took 117 ns instead of 37 (BPF_PROG_TEST_RUN, 5 million runs, a virtual machine, 6.18). A reading costs about 0.4 µs for each open file of all processes, and some µs for each program (--stats).`,
	Examples: []string{
		"bpftop                       # a screen of all programs, each second",
		"bpftop -C -d 5 -s runs       # tables of five seconds, by how often programs ran",
		"bpftop --comm cilium-agent --columns +total_runs,misses  # those that one holds",
		"bpftop --output json 10 1 --filter 'cpu_percent > 1'     # what takes more than 1% of a CPU",
	},
	Object:       loadBpf,
	Tasks:        true,
	Capabilities: []system.Capability{system.CapSysAdmin},
	Shorts:       map[string]string{"pid": "p"},
}, options{Top: tool.TopBy("cpu_percent")}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	perCPU, err := env.PerCPU()
	if err != nil {
		return nil, err
	}
	if o.Delay > 0 {
		o.Every = o.Delay
	}
	return &tool.Table[key, entry, row]{
		Plan:     tool.Plan{Variables: perCPU, Optional: []string{"free"}, Measure: true},
		Top:      &o.Top,
		Readings: []tool.Iterator{{Program: "holders"}, {Program: "programs"}},
		Columns:  []string{"id", "bpf_type", "name", "pid", "comm", "runs_per_second", "mean_ns", "cpu_percent", "total_runs"},
		Label:    label,
		Fill:     fill,
	}, nil
}

func label(k *key, e *entry) row {
	p := &e.Program
	return row{
		ID: k.ID, Type: value.ProgramType(p.Type), Name: value.NameOf(p.Name[:]), Holders: p.Holders,
		PID:  value.Count{N: uint64(p.PID), Given: p.PID != 0},
		UID:  value.Count{N: uint64(p.UID), Given: p.PID != 0},
		Comm: value.NameOf(p.Comm[:]), CgroupID: uint64(p.CgroupID),
	}
}

func fill(r *row, e *entry, length time.Duration) {
	r.Runs, r.RunTime, r.Misses = e.Counts.Runs, e.Counts.RunNs, e.Counts.Misses
	r.Rate = value.NewRate(r.Runs, int64(length))
	r.Mean = value.Mean{Sum: r.RunTime, N: r.Runs}
	r.CPU = value.Percent(100 * float64(r.RunTime) / float64(length))
	r.TotalRuns = uint64(e.Program.Total.Runs)
	r.TotalMean = value.Mean{Sum: uint64(e.Program.Total.RunNs), N: r.TotalRuns}
}
