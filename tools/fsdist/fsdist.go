// Package fsdist shows how long operations on files take.
package fsdist

import (
	"github.com/corescope/corescope/internal/fsop"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh fsdist.bpf.c

type options struct {
	fsop.Options
	tool.Interval
	tool.Milliseconds
	ByType bool `flag:"types" bpf:"by_type" key:"fs" help:"a histogram for each type of file system"`
	PIDs   bool `flag:"pids,P" bpf:"by_pid" key:"pid,comm" help:"a histogram for each process"`
	tool.ByOwner
}

// histKey is struct hist_key.
type histKey struct {
	CgroupID uint64
	Type     [16]byte
	Comm     value.Comm
	PID      uint32
	Op       value.FileOp
}

type label struct {
	Operation string     `json:"operation" help:"read, write, open, fsync (fdatasync too) or getattr (stat and its like; none by the hook syscall)"`
	FS        value.Comm `json:"fs" help:"type of the file system, as the kernel calls it"`
	PID       uint32     `json:"pid" help:"process, in the initial PID namespace"`
	Comm      value.Comm `json:"comm" col:"COMM,width=16,bare" help:"name of the process (its first thread)"`
	Cgroup    string     `json:"cgroup" help:"path of the cgroup that the task was in at the end of the operation"`
	Container string     `json:"container" help:"name of the container by that cgroup, or its short id; empty for what is in none"`
}

// Tool is fsdist.
var Tool = tool.Define(tool.Spec{
	Name:        "fsdist",
	Also:        fsop.Aliases("dist"),
	Category:    "file",
	Summary:     "Show how long operations on files take, as histograms",
	Description: "Measures how long reads, writes, opens, fsyncs and getattrs of files take, in CLOCK_MONOTONIC, each operation by itself. All that the task waits for is in the time. What fails is an operation too.\n\n" + fsop.Text(),
	Peers: []string{
		"Without -t all types are measured; libbpf-tools wants one named. --types tells them apart.",
		"-T is --timestamp, as in libbpf-tools. In BCC it leaves the time out, which is not there here without -T.",
		"An operation that never happened has no histogram, where libbpf-tools prints its name.",
		"BCC's nfsdist has getattr and no fsync, zfsdist, xfsdist and btrfsdist no getattr; here each type has all five.",
		"What is only queued (AIO, io_uring) is counted in the summary, and in no histogram.",
	},
	Examples: []string{
		"fsdist 1 10                # all types, a report each second, ten times",
		"fsdist -t ext4 -m 5        # ext4, in milliseconds",
		"fsdist --types --pids --filter 'p99 > 10000'  # who has slow files, and where",
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
	return &tool.Hists[histKey, label]{
		Plan: plan, Interval: o.Interval, Unit: o.Unit(), Keys: append(tool.Keys(o), "operation"),
		Label: func(k histKey) label { return o.label(k, env) },
	}, nil
}

func (o *options) label(k histKey, env *tool.Env) label {
	l := label{Operation: k.Op.String(), FS: k.Type, PID: k.PID, Comm: k.Comm}
	l.Cgroup, l.Container = o.Owner(k.CgroupID, env)
	return l
}
