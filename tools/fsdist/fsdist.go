// Package fsdist shows file system latency as histograms.
package fsdist

import (
	"github.com/corescope/corescope/internal/fsop"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh fsdist.bpf.c

type options struct {
	fsop.Options
	source.Interval
	source.Milliseconds
	ByType bool `flag:"types" bpf:"by_type" key:"fs" help:"one histogram per type of file system"`
	NoTime bool `flag:"notimestamp" help:"no effect, for compatibility with BCC: the time is shown only with --timestamp"`
	PIDs   bool `flag:"pids,P" bpf:"by_pid" key:"pid,comm" help:"one histogram per process"`
	source.ByOwner
}

// histKey mirrors struct hist_key.
type histKey struct {
	CgroupID uint64
	Type     [16]byte
	Comm     value.Comm
	PID      uint32
	Op       value.FileOp
}

type label struct {
	Operation string     `json:"operation" help:"read, write, open, fsync (and fdatasync) or getattr (stat and similar; unavailable with hook syscall)"`
	FS        value.Comm `json:"fs" help:"type of the file system, as named by the kernel"`
	PID       uint32     `json:"pid" help:"process, in the initial PID namespace"`
	Comm      value.Comm `json:"comm" col:"COMM,width=16,bare" help:"name of the process (its thread-group leader)"`
	Cgroup    string     `json:"cgroup" help:"path of the task's cgroup at the end of the operation"`
	Container string     `json:"container" help:"name of the container of that cgroup, or its short ID; empty outside containers"`
}

// Tool is the definition of fsdist.
var Tool = tool.Define(tool.Spec{
	Name:        "fsdist",
	Also:        fsop.Aliases("dist"),
	Category:    "file",
	Summary:     "File system latency as histograms (read, write, open, fsync, getattr)",
	Description: "Measures the latency of file reads, writes, opens, fsyncs and getattrs with CLOCK_MONOTONIC, as one histogram per operation. The time includes all waits of the task. Failed operations are included.\n\n" + fsop.Text(),
	Peers: []string{
		"Without -t all types are measured; libbpf-tools requires one. --types groups by type.",
		"-T is --timestamp, as in libbpf-tools. In BCC -T is --notimestamp, which has no effect here: the time is omitted by default.",
		"An operation that did not occur has no histogram; libbpf-tools prints its name.",
		"BCC's nfsdist has getattr and no fsync, its zfsdist, xfsdist and btrfsdist have no getattr; here each type has all five operations.",
		"Operations that are only queued (AIO, io_uring) are counted in the summary, but in no histogram.",
	},
	Examples: []string{
		"fsdist 1 10                # all types, a report each second, ten times",
		"fsdist -t ext4 -m 5        # ext4, in milliseconds, every five seconds",
		"fsdist --types --pids --filter 'p99 > 10000'  # processes and types with a p99 above 10 ms",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.Plan()
	if err != nil {
		return nil, err
	}
	plan.Variables["by_cgroup"] = o.ByOwner.Wanted()
	return &source.Hists[histKey, label]{
		Plan: plan, Interval: o.Interval, Unit: o.Unit(), Keys: append(source.Keys(o), "operation"),
		Bounds: map[string]uint32{"operation": 5, "fs": 16}, // few file systems are in use at the same time
		Label:  func(k histKey) label { return o.label(k, env) },
	}, nil
}

func (o *options) label(k histKey, env *tool.Env) label {
	l := label{Operation: k.Op.String(), FS: k.Type, PID: k.PID, Comm: k.Comm}
	l.Cgroup, l.Container = o.Owner(k.CgroupID, env)
	return l
}
