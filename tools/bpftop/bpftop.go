// Package bpftop shows run counts and run times of BPF programs.
package bpftop

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh bpftop.bpf.c

type options struct {
	source.Top
	Delay flags.Duration `flag:"delay,d" arg:"TIME" help:"interval between reports"`
}

// key mirrors struct table_key.
type key struct{ ID uint32 }

// counts mirrors struct prog_counts in prog.bpf.h.
type counts struct{ Runs, RunNs, Misses uint64 }

// total is a number that is read from the kernel, not summed by the tool.
type total uint64

// program mirrors struct program.
type program struct {
	Total                   struct{ Runs, RunNs, Misses total }
	LoadNs, CgroupID        total
	Type, PID, UID, Holders uint32
	Comm                    value.Comm
	Name                    [64]byte
}

// entry mirrors struct table_value.
type entry struct {
	Counts  counts
	Program program
}

type row struct {
	ID        uint32        `json:"id" col:"ID,width=6" help:"ID of the program, as in bpftool and bpflist"`
	Type      string        `json:"bpf_type" col:"TYPE,width=16" help:"type of the program: name in the kernel without the common prefix"`
	Name      value.Name    `json:"name" col:"NAME,width=24" help:"name of its function; without BTF the first 15 bytes of it"`
	PID       value.Count   `json:"pid" col:"PID,width=7" help:"process that holds the program: the first one with a file descriptor of it or of a link to it; absent if there is none"`
	UID       value.Count   `json:"uid" col:"UID,width=6" help:"real user ID of the holder, in the initial user namespace"`
	Comm      value.Name    `json:"comm" col:"COMM,width=16" help:"name of the holder"`
	Holders   uint32        `json:"holders" col:"HOLD,width=4,right" help:"file descriptors of the program and of links to it, in all processes"`
	Rate      value.Rate    `json:"runs_per_second" col:"EVENTS/s,width=9,right" help:"runs per second in the interval"`
	Mean      value.Mean    `json:"mean_ns" col:"AVG_NS,width=9,right" help:"mean run time in the interval; absent without a run"`
	CPU       value.Percent `json:"cpu_percent" col:"CPU%,width=7,right" help:"run time in percent of the interval: 100 is one CPU"`
	Runs      uint64        `json:"runs" col:"RUNS,width=10,right" help:"runs in the interval"`
	RunTime   uint64        `json:"run_ns" col:"RUN_NS,width=12,right" help:"total run time in the interval"`
	Misses    uint64        `json:"misses" col:"MISSES,width=6,right" help:"runs in the interval that the kernel skipped because the program was already running on that CPU (kernel 5.12 and later)"`
	TotalRuns uint64        `json:"total_runs" col:"TOTAL,width=12,right" help:"runs since loading, while the kernel was measuring"`
	TotalMean value.Mean    `json:"total_mean_ns" col:"TOTAL_AVG_NS,width=12,right" help:"mean time of these runs; absent without a run"`
	CgroupID  uint64        `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the holder's cgroup: inode number of its directory"`
}

// Tool is the definition of bpftop.
var Tool = tool.Define(tool.Spec{
	Name:     "bpftop",
	Category: "process",
	Summary:  "CPU time and run counts of BPF programs, as a top-like table",
	Description: `Shows the loaded BPF programs each second: how often they ran, the mean run time, and their share of a CPU, the most expensive first. The programs of this run of bpftop are included, with its process as the holder.

The kernel measures run times while bpftop runs (BPF_ENABLE_STATS), and stops afterwards. An interval is the difference between two readings of the kernel's counters. Runs of a program between the last reading and its removal are included, because the counters are also read when a program is freed. If a program is loaded and freed between two readings, only its existence is known: the summary has the number of these programs (unseen). For a program that is released at the very end of the run, the runs since the last reading can be missing.

Before kernel 5.19 the counters are readable only if /proc/kallsyms contains the kernel's variables (CONFIG_KALLSYMS_ALL), which requires CAP_SYSLOG.`,
	Peers: []string{
		"-d and the columns are those of Netflix' bpftop; TOTAL_AVG_NS and others are available with --columns. Its graphs are not supported.",
		"CPU% is relative to one CPU, as in Netflix' bpftop.",
		"Holders include processes that hold a link: loaders often keep only the link.",
		"The kernel measures only programs that it runs separately. Programs that are inlined, or run as part of others, have no runs.",
		"JSON and CSV have all programs; --rows (20 in text) limits them too if given.",
	},
	Overhead: "While bpftop runs, every run of every BPF program on the machine takes longer, because the kernel reads the clock twice: an empty program took 117 ns instead of 37 (BPF_PROG_TEST_RUN, 5 million runs, virtual machine, kernel 6.18). A reading takes about 0.4 us per open file of all processes, and some us per program (--stats).",
	Examples: []string{
		"bpftop                       # a screen of all programs, each second",
		"bpftop -C -d 5 -s runs       # a table every five seconds, by number of runs",
		"bpftop --comm cilium-agent --columns +total_runs,misses  # programs of one holder",
		"bpftop --output json 10 1 --filter 'cpu_percent > 1'     # programs that use more than 1% of a CPU",
	},
	Object:       loadBpf,
	Tasks:        true,
	Capabilities: []system.Capability{system.CapSysAdmin},
	Shorts:       map[string]string{"pid": "p"},
}, options{Top: source.TopBy("cpu_percent")}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	perCPU, err := env.PerCPU()
	if err != nil {
		return nil, err
	}
	if o.Delay > 0 {
		o.Every = o.Delay
	}
	return &source.Table[key, entry, row]{
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
