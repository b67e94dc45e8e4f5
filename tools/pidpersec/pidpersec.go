// Package pidpersec counts new processes and threads.
package pidpersec

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh pidpersec.bpf.c

type options struct{ source.Rounds }

// counts mirrors struct totals.
type counts struct {
	Processes uint64 `json:"processes" col:"PROCESSES,width=9,right" help:"processes created in the interval, including kernel threads"`
	Threads   uint64 `json:"threads" col:"THREADS,width=9,right" help:"further threads of processes created in the interval"`
}

type row struct {
	counts
	Rate        value.Rate `json:"tasks_per_s" col:"PIDs/s,width=8,right" help:"processes and threads created per second; each of them takes a number from the same range as process IDs"`
	ProcessRate value.Rate `json:"processes_per_s" col:"PROC/s,width=8,right" help:"processes created per second"`
	ThreadRate  value.Rate `json:"threads_per_s" col:"THREAD/s,width=8,right" help:"threads created per second"`
}

// Tool is the definition of pidpersec.
var Tool = tool.Define(tool.Spec{
	Name:     "pidpersec",
	Category: "process",
	Summary:  "Count new processes and threads (forks) per second",
	Description: `Counts the processes and threads that are created per interval (one second by default). Many short-lived processes cost CPU time that top(1) does not attribute to any of them; execsnoop(8) shows which they are.

Creations are counted at task:task_newtask, in the context of the task that creates them, to which the task filter applies. A fork(2) or clone(2) that fails is not counted.`,
	Peers: []string{
		"PIDs/s includes threads, as in BCC and bpftrace, which trace sched_fork; PROC/s and THREAD/s distinguish them. sched_fork is also called by some forks that fail later.",
		"The interval and the task filter are options; BCC and bpftrace have none.",
	},
	Examples: []string{
		"pidpersec          # a line each second",
		"pidpersec 10 6     # six lines of ten seconds each",
		"pidpersec --comm make  # tasks that one program creates",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{source.Rounds{Every: flags.Duration(time.Second)}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Table[struct{}, counts, row]{
		Rounds:  o.Rounds,
		Columns: []string{"time", "tasks_per_s", "processes_per_s", "threads_per_s"},
		Fill: func(r *row, c *counts, span time.Duration) {
			r.counts = *c
			r.Rate = value.NewRate(c.Processes+c.Threads, int64(span))
			r.ProcessRate = value.NewRate(c.Processes, int64(span))
			r.ThreadRate = value.NewRate(c.Threads, int64(span))
		},
	}, nil
}
