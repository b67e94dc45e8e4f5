// Package bitesize shows the sizes of block I/O requests as histograms.
package bitesize

import (
	"github.com/corescope/corescope/internal/blockio"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh bitesize.bpf.c

type options struct {
	blockio.Options
	source.Interval
}

// histKey mirrors struct hist_key.
type histKey struct{ Comm value.Comm }

type label struct {
	Comm value.Comm `json:"comm" help:"name of the thread that submitted the requests"`
}

// Tool is the definition of bitesize.
var Tool = tool.Define(tool.Spec{
	Name:     "bitesize",
	Category: "block",
	Summary:  "Disk (block) I/O request size by process name, as a histogram",
	Description: `Shows the sizes of block I/O requests, in units of 1,024 bytes, with one histogram per name of the submitting thread.

A request is counted on completion (block_rq_complete), with all its bytes, even if it completed in parts. Its size is that of the request as the disk received it: the kernel splits large reads and writes, and merges adjacent ones. A flush of the disk's cache is a request of size 0. Requests that fail are included, and also counted as errors.

A request belongs to the thread that submitted it. It is recorded at block_io_start (kernel 6.5 and later), otherwise when the request is first inserted or issued; it is never the task that is current at completion. Writeback is submitted by kernel threads, so it belongs to them and not to the task that wrote to the file: see writeback(8). --cgroup selects it by the cgroup that the kernel accounts it to, provided that cgroup IDs refer to the hierarchy of the I/O controller. A flush of the disk's cache, as for fsync(2), belongs to the task that is current when the kernel issues it, often a kernel worker (kworker): the kernel combines the flushes that several tasks wait for into one request.

I/O of device mapper and md disks is shown as I/O of the underlying disks. The counters in the summary are those of biolatency(8).`,
	Peers: []string{
		"-c is --comm and -d is --disk, as in libbpf-tools. A histogram has the title comm = NAME instead of Process Name = NAME.",
		"The name is that of the submitting thread. The peers show the task that is current when the request is issued to the driver, which is often a kernel worker.",
		"A request that the driver returns (requeue), or that completes in parts, is one request. In the peers it counts each time it is issued.",
		"Sizes are counted in bytes: count, sum, min and max in JSON are exact, with fractions of 1,024 bytes. Buckets of JSON and CSV are at most a sixteenth of their sizes wide, so percentiles are within 6 %. The peers round sizes down to units of 1,024 bytes and have one bucket per power of two.",
	},
	Examples: []string{
		"bitesize                     # one report at the end",
		"bitesize 1 10 -d vda         # one disk, each second, ten times",
		"bitesize -c postgres         # threads of this name",
		"bitesize --filter 'p50 < 16' # names whose median request is smaller than 16 KB",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "comm": "c"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan(env)
	if err != nil {
		return nil, err
	}
	plan.Variables["want_owner"] = true
	return &source.Hists[histKey, label]{
		Plan:     plan,
		Interval: o.Interval,
		Unit:     histogram.Kilobytes,
		Label:    func(k histKey) label { return label(k) },
		Keys:     []string{"comm"},
	}, nil
}
