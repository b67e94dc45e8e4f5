// Package throttletop shows the cgroups that the CPU limit (cpu.max) holds back.
package throttletop

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

type options struct {
	source.Top
	Cgroup    string `flag:"cgroup" arg:"PATH" help:"only this cgroup and its descendants"`
	Container string `flag:"container" arg:"NAME|ID" help:"only this container"`
}

type key struct{ CgroupID uint64 }

// counts are the counters of cpu.stat, and the limit. Counters that the kernel does not have are
// not in has.
type counts struct {
	Periods, Throttled, ThrottledNs, AnyNs, Bursts, BurstNs, UsageNs uint64

	has   present
	limit limit
}

// present states which counters a kernel or a version of cgroups has.
type present struct{ Any, Bursts, Usage bool }

type row struct {
	Periods   uint64        `json:"periods" col:"PERIODS,width=7,right" help:"enforcement periods of the cgroup's own limit that ended in the interval (nr_periods of cpu.stat); periods in which no task of the cgroup was runnable need not be counted"`
	Throttled uint64        `json:"throttled_periods" col:"THROTTLED,width=9,right,counter" help:"of these, periods in which the quota was used up and tasks were stopped (nr_throttled)"`
	Share     value.Percent `json:"throttled_percent" col:"THR%,width=7,right" help:"throttled periods in percent of periods; absent without periods"`
	Time      value.Micros  `json:"throttled_ns" col:"THROTTLED_us,width=13,right" help:"time for which the cgroup's own limit stopped its run queues, summed over CPUs, so it can exceed the interval (throttled_usec of cgroup v2, throttled_time of v1); the kernel adds it when a run queue continues, so a stop counts in the interval in which it ends"`
	Any       value.Count   `json:"throttled_any_ns" col:"ANY_ns,width=13,right" help:"time for which runnable tasks directly in this cgroup were stopped by its own limit or by that of an ancestor, summed over CPUs (throttled_usec of cpu.stat.local); absent before Linux 6.6"`
	Usage     value.Count   `json:"usage_ns" col:"USAGE_ns,width=13,right" help:"CPU time that tasks of the cgroup and its descendants used in the interval (usage_usec of cpu.stat); absent with cgroup v1"`
	Limit     value.Load    `json:"limit_cpus" col:"LIMIT,width=8,right" help:"quota divided by period at the end of the interval: 0.2 is a fifth of one CPU; absent without a limit"`
	Quota     value.Span    `json:"quota_ns" col:"QUOTA_ms,width=9,right" help:"CPU time that the cgroup can use per period, at the end of the interval (cpu.max, cpu.cfs_quota_us); absent without a limit; text shows milliseconds"`
	Period    value.Span    `json:"period_ns" col:"PERIOD_ms,width=9,right" help:"length of a period; text shows milliseconds"`
	Bursts    value.Count   `json:"bursts" col:"BURSTS,width=6,right" help:"periods in which the cgroup used more than its quota, as cpu.max.burst allows (nr_bursts); absent before Linux 5.14"`
	BurstTime value.Count   `json:"burst_ns" col:"BURST_ns,width=13,right" help:"CPU time above the quota in these periods; absent before Linux 5.14"`
	CgroupID  uint64        `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the cgroup: inode number of its directory, in the hierarchy of the cpu controller"`
}

// Tool is the definition of throttletop.
var Tool = tool.Define(tool.Spec{
	Name:     "throttletop",
	Category: "scheduler",
	Summary:  "Cgroups and containers that a CPU limit (cpu.max, CFS quota) throttles, as a top-like table",
	Description: `Shows per interval (one second by default) which cgroups and containers were held back by their CPU limit, in how many periods and for how long, and sorts them by the throttled time. Limits are cpu.max of cgroup v2 and cpu.cfs_quota_us of v1, which container runtimes set from --cpus and Kubernetes from resources.limits.cpu.

A cgroup with a limit may use its quota of CPU time in each period, usually 100 ms. When the quota is used up, the kernel stops the tasks of the cgroup and its descendants until the next period. A program with several threads uses up its quota in a part of the period, and each request that is then in progress waits for the rest of it: latency rises although the CPUs are idle.

The numbers are differences of the counters that the kernel keeps for each cgroup, in cpu.stat and cpu.stat.local. Nothing is traced or sampled, and there are no BPF programs, so it needs no privileges. A row is a cgroup that has a limit, or had throttled time in the interval. cpu.stat counts the cgroup's own limit only. A cgroup without a limit below one that is throttled is shown with throttled_any_ns, from Linux 6.6 on.

A cgroup that is removed in an interval takes its last counters with it. If it had a row before, it is counted as not observed in the summary. A cgroup that is created and removed between two readings is not seen at all; a shorter interval makes both less likely.

runqlat(8) shows how long tasks wait for CPUs, which includes the time that they are throttled, and offcputime(8) which code waited.`,
	Peers: []string{
		"Inspektor Gadget has this table as top_cpu_throttle.",
		"cpu.stat, and what docker stats and cAdvisor derive from it, contains totals since the cgroup was created; here each row is about one interval.",
	},
	Examples: []string{
		"throttletop                 # who is throttled, each second",
		"throttletop 10 6 -C         # six tables of ten seconds each",
		"throttletop --filter 'throttled_percent > 25' --columns +usage_ns  # throttled in more than a quarter of the periods, with the CPU time used",
		"throttletop --container web --output json 5  # one container every five seconds, as JSON lines",
	},
	NoPrograms: true,
}, options{Top: source.TopBy("throttled_ns")}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	r := &reader{}
	plan := tool.Plan{RowNoun: "cgroup with a CPU limit", Resolve: func(*tool.Plan, *tool.Kernel) error { return r.open(o, env) }}
	return &source.Table[key, counts, row]{
		Plan: plan, Top: &o.Top,
		Columns: []string{"periods", "throttled_periods", "throttled_percent", "throttled_ns", "limit_cpus", "quota_ns", "period_ns", "container", "cgroup"},
		Poll:    source.PollWith(r.poll),
		Label:   func(k *key, _ *counts) row { return row{CgroupID: k.CgroupID} },
		Fill:    fill,
		Keep:    func(r *row) bool { return r.Quota.Nanoseconds > 0 || r.Periods+r.Throttled+uint64(r.Time)+r.Any.N > 0 },
	}, nil
}

func fill(r *row, c *counts, _ time.Duration) {
	r.Periods, r.Throttled, r.Time = c.Periods, c.Throttled, value.Micros(c.ThrottledNs)
	r.Share, r.Limit = value.Percent(math.NaN()), value.Load(math.NaN())
	if c.Periods > 0 {
		r.Share = value.Percent(100 * float64(c.Throttled) / float64(c.Periods))
	}
	r.Any, r.Usage = value.Count{N: c.AnyNs, Given: c.has.Any}, value.Count{N: c.UsageNs, Given: c.has.Usage}
	r.Bursts, r.BurstTime = value.Count{N: c.Bursts, Given: c.has.Bursts}, value.Count{N: c.BurstNs, Given: c.has.Bursts}
	r.Quota, r.Period = value.Span{Nanoseconds: c.limit.quota}, value.Span{Nanoseconds: c.limit.period}
	if c.limit.quota > 0 && c.limit.period > 0 {
		r.Limit = value.Load(float64(c.limit.quota) / float64(c.limit.period))
	}
}

// reader reads the counters of the selected cgroups.
type reader struct {
	cgroups *system.Cgroups
	targets []system.Target
	v2      bool
}

func (r *reader) open(o *options, env *tool.Env) (err error) {
	if r.cgroups, err = env.Cgroups(); err == nil {
		r.v2, err = r.cgroups.FollowController("cpu")
	}
	if errors.Is(err, system.ErrNoCgroups) || errors.Is(err, system.ErrNoController) {
		return fmt.Errorf("%w: %w (needs CONFIG_CFS_BANDWIDTH, and a mounted cgroup hierarchy with the cpu controller)", tool.ErrUnsupported, err)
	}
	if err != nil {
		return err
	}
	r.targets, err = env.CgroupTargets(o.Cgroup, o.Container)
	return err
}

func (r *reader) poll(yield func(key, counts)) error {
	return r.cgroups.Each(func(cgroup, dir string, id uint64) {
		if len(r.targets) > 0 && !slices.ContainsFunc(r.targets, func(t system.Target) bool { return t.Covers(cgroup) }) {
			return
		}
		if c, ok := read(dir, r.v2); ok {
			yield(key{id}, c)
		}
	})
}
