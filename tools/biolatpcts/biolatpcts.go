// Package biolatpcts shows percentiles of block I/O latency.
package biolatpcts

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh biolatpcts.bpf.c -type start -type block_op

type options struct {
	Disk        string             `pos:"dev" help:"only this disk or partition: vda, /dev/vda1, a device mapper name, or MAJOR:MINOR; all disks by default"`
	Every       every              `flag:"interval,i" arg:"TIME" help:"time between reports, in seconds or with a unit as 500ms; -1: one report at the end; at least 1ms"`
	Which       string             `flag:"which,w" arg:"LATENCY" of:"from-rq-alloc,after-rq-alloc,on-device" help:"start of the measured time: from-rq-alloc (the kernel begins to allocate the request), after-rq-alloc (it has allocated it) or on-device (issue to the driver)"`
	Percentiles source.Percentiles `flag:"pcts,p" arg:"PCT,..." help:"percentiles, from 0 to 100"`
	Timestamp   bool               `flag:"timestamp,T" help:"show the time of each report"`
	JSON        bool               `flag:"json,j" sets:"output=json" help:"same as --output json"`
}

// every is a duration, or -1 for one report at the end of the run, which is 0 here.
type every struct{ flags.Duration }

// UnmarshalText parses s.
func (e *every) UnmarshalText(s []byte) error {
	if string(s) == "-1" {
		e.Duration = 0
		return nil
	}
	if err := e.Duration.UnmarshalText(s); err != nil {
		return err
	}
	if time.Duration(e.Duration) < time.Millisecond {
		return errors.New("it must be at least 1ms, or -1")
	}
	return nil
}

// Check returns an error for an invalid percentile.
func (o *options) Check() error {
	if err := o.Percentiles.Check(); err != nil {
		return fmt.Errorf("--pcts: %w", err)
	}
	return nil
}

// histKey mirrors struct hist_key.
type histKey struct{ Dev, Op uint32 }

type label struct {
	Disk      string `json:"disk" col:"DISK,width=10" help:"disk that the I/O is for"`
	Operation string `json:"operation" col:"OPERATION,width=10" help:"operation of the request"`
}

// Tool is the definition of biolatpcts.
var Tool = tool.Define(tool.Spec{
	Name:     "biolatpcts",
	Category: "block",
	Summary:  "Percentiles of disk (block) I/O latency by operation: p50, p99, p99.9",
	Description: `Shows percentiles of the latency of block I/O requests every three seconds, with one line for each disk and operation that had requests in the interval: read, write, flush, discard and so on.

The time of a request ends with its completion (block_rq_complete). -w selects its start. on-device, the default, is the last issue of the request to the driver (block_rq_issue), as in biolatency(8). after-rq-alloc is the time at which the kernel has allocated the request: it includes the I/O scheduler and the queue, but not the wait for a free request. from-rq-alloc is the time at which the kernel begins to allocate it, which includes that wait. The kernel records these two times itself (start_time_ns and alloc_time_ns of struct request), in CLOCK_MONOTONIC. From Linux 6.9 on, requests that a task submits together (plugging) have the same time. If a request is merged into another one, the time of the earlier one counts.

The kernel records the first time only for disks with I/O accounting (queue/iostats in sysfs), and the second only with CONFIG_BLK_RQ_ALLOC_TIME and for disks with a cost model (io.cost.qos of cgroups). Requests without the time are not in the percentiles. They are counted as untimed, and as lost events (unobserved); a message at the end names what is needed.

A percentile is the smallest time such that at least this percentage of the requests took no longer (nearest rank). It is within 5 % of the exact value, usually within 1 %; 0 and 100 are the exact minimum and maximum. JSON has the percentiles as an object whose keys are those of -p, and also the buckets, from which other percentiles can be computed. Values in JSON and CSV are in microseconds.

Requests that fail are included, and also counted as errors. A request that completes in parts is one request. I/O of device mapper and md disks is shown as I/O of the underlying disks. The other counters in the summary are those of biolatency(8).`,
	Peers: []string{
		"DEV is optional; without it, all disks are shown. Operations without requests have no line; BCC shows read, write, discard and flush with 0.",
		"Percentiles are interpolated in buckets of at most 6 % of their value. BCC has buckets of 10 us, 1 ms and 100 ms, so all I/O faster than 10 us is shown as 5 us.",
		"-j is --output json, in the common format of all tools and in microseconds; BCC prints one object per report, in seconds.",
		"-i -1 shows one report at the end. BCC prints one when it receives SIGUSR1 or SIGUSR2. -i 0 of BCC, which tests whether the tool can start, is: corescope doctor biolatpcts.",
		"-p is --pcts as in BCC; --pid has no short form.",
		"With from-rq-alloc and after-rq-alloc, requests without a recorded time are counted as lost; BCC omits them.",
	},
	Examples: []string{
		"biolatpcts                   # all disks, every three seconds",
		"biolatpcts -i 1 vda          # one disk, each second",
		"biolatpcts -p 50,99,99.9,99.99 -j -i 10 /dev/nvme0n1  # JSON with these percentiles",
		"biolatpcts -w after-rq-alloc -i -1 --duration 1m vda  # with the time in the I/O scheduler, one report after a minute",
	},
	Object: loadBpf,
	Tasks:  true,
}, options{
	Every: every{flags.Duration(3 * time.Second)}, Which: "on-device",
	Percentiles: source.Percentiles{"1", "5", "10", "16", "25", "50", "75", "84", "90", "95", "99", "100"},
}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := blockio.Options{}.Plan(env)
	if err != nil {
		return nil, err
	}
	if o.Disk != "" {
		if plan.Variables["targ_dev"], err = env.Disks.Dev(o.Disk); err != nil {
			return nil, fmt.Errorf("argument dev: %w", err)
		}
	}
	start := map[string]bpfStart{"on-device": bpfStartSTART_ISSUE, "after-rq-alloc": bpfStartSTART_AFTER_ALLOC, "from-rq-alloc": bpfStartSTART_FROM_ALLOC}[o.Which]
	plan.Variables["targ_start"] = uint32(start)
	plan.ForFilter = []string{"submit"}
	if start != bpfStartSTART_ISSUE {
		plan.Hints = map[string]string{"untimed": "requests for which the kernel recorded no such time are not in the percentiles: --which " + o.Which + " needs " + need(start)}
	}
	if start == bpfStartSTART_FROM_ALLOC {
		size := plan.Resolve
		plan.Resolve = func(p *tool.Plan, k *tool.Kernel) error { return cmp.Or(size(p, k), checkAllocTime(p, k)) }
	}
	return &source.Hists[histKey, label]{
		Plan:        plan,
		Interval:    source.Interval{Rounds: source.Rounds{Every: o.Every.Duration}, Timestamp: o.Timestamp},
		Unit:        histogram.Microseconds,
		Label:       func(k histKey) label { return label{blockio.DiskName(k.Dev, env), blockio.OperationName(k.Op)} },
		Keys:        []string{"disk", "operation"},
		Bounds:      map[string]uint32{"disk": env.Disks.Bound(), "operation": blockio.UsualOperations},
		Percentiles: o.Percentiles,
	}, nil
}

// need describes the disks for which the kernel records the start.
func need(start bpfStart) string {
	if start == bpfStartSTART_FROM_ALLOC {
		return "a disk with a cost model (enable=1 in io.cost.qos of the root cgroup)"
	}
	return "a disk with I/O accounting (1 in /sys/block/DISK/queue/iostats)"
}

// checkAllocTime returns an error if this kernel does not record when it begins to allocate a
// request.
func checkAllocTime(_ *tool.Plan, k *tool.Kernel) error {
	var request *btf.Struct
	if err := k.TypeByName("request", &request); err != nil && !errors.Is(err, btf.ErrNotFound) {
		return fmt.Errorf("--which from-rq-alloc: %w", err)
	}
	if request != nil {
		for _, m := range request.Members {
			if m.Name == "alloc_time_ns" {
				return nil
			}
		}
	}
	return fmt.Errorf("--which from-rq-alloc: %w: it needs CONFIG_BLK_RQ_ALLOC_TIME", tool.ErrUnsupported)
}
