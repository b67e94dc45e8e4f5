// Package loads shows load averages.
package loads

import (
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

type options struct{ source.Rounds }

type row struct {
	One     value.Load `json:"load1" col:"LOAD1,width=9,right" help:"load average over about 1 minute at the end of the interval: runnable tasks and tasks in uninterruptible sleep of the whole machine"`
	Five    value.Load `json:"load5" col:"LOAD5,width=9,right" help:"the same over about 5 minutes"`
	Fifteen value.Load `json:"load15" col:"LOAD15,width=9,right" help:"the same over about 15 minutes"`
	Tasks   uint64     `json:"threads" col:"THREADS,width=8,right" help:"number of threads of the whole machine (procs of sysinfo(2), modulo 65,536)"`
}

// Tool is the definition of loads.
var Tool = tool.Define(tool.Spec{
	Name:     "loads",
	Category: "scheduler",
	Summary:  "Load averages (1, 5 and 15 minutes) with three decimals, each second",
	Description: `Shows the load averages of the machine once a second, with a resolution of 1/2,048; /proc/loadavg and uptime(1) have two decimals.

The kernel computes a load average every 5 seconds as an exponentially damped mean of the number of runnable tasks and tasks in uninterruptible sleep. It is read with sysinfo(2), which containers do not change. There are no BPF programs, so it needs no privileges.

Load averages include tasks that wait for disks. runqlen(8) shows tasks that wait for a CPU, offcputime(8) with --state 2 what tasks wait for in uninterruptible sleep.`,
	Peers: []string{
		"bpftrace's loads.bt reads a variable of the kernel, for which it needs kallsyms; sysinfo(2) returns the same values.",
	},
	Examples: []string{
		"loads            # each second",
		"loads 5 12       # twelve lines, one every five seconds",
	},
	NoPrograms: true,
}, options{source.Rounds{Every: flags.Duration(time.Second)}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Table[struct{}, struct{}, row]{
		Rounds:  o.Rounds,
		Columns: []string{"time", "load1", "load5", "load15"},
		Poll:    source.PollWith(func(yield func(struct{}, struct{})) error { yield(struct{}{}, struct{}{}); return nil }),
		Fill:    fill,
	}, nil
}

func fill(r *row, _ *struct{}, _ time.Duration) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil { // cannot fail with a valid pointer
		*r = row{One: value.Load(math.NaN()), Five: value.Load(math.NaN()), Fifteen: value.Load(math.NaN())}
		return
	}
	// SI_LOAD_SHIFT of the kernel.
	const unit = 1 << 16
	load := func(i int) value.Load { return value.Load(float64(info.Loads[i]) / unit) }
	*r = row{load(0), load(1), load(2), uint64(info.Procs)}
}
