// Package exitsnoop traces the exits of processes.
package exitsnoop

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh exitsnoop.bpf.c

type options struct {
	Timestamp bool   `flag:"timestamp,t" help:"show the local time"`
	Failed    bool   `flag:"failed,x" bpf:"targ_failed" help:"only failures: a non-zero exit code or a signal"`
	Threads   bool   `flag:"threaded,T" also:"per-thread" bpf:"targ_threads" help:"one row per thread, instead of per process"`
	UTC       bool   `flag:"utc" help:"show the time in UTC, with milliseconds, instead of the local time; implies -t"`
	Label     string `flag:"label" arg:"TEXT" bare:"exit" help:"show a column LABEL with this text"`
}

type event struct {
	value.Task
	Age        value.Elapsed `json:"age_ns" col:"AGE(s),width=8,right" help:"time from the start of the process, with -T of the thread, to its exit (CLOCK_BOOTTIME); text shows seconds" btf:"age_ns"`
	PPID       uint32        `json:"ppid" col:"PPID,width=7" help:"process ID of the parent at the exit, in the initial PID namespace"`
	Status     uint32
	ParentComm value.Comm `json:"parent_comm" col:"PARENT,width=16" help:"name of the thread of the parent that created the process, or of the thread that adopted it"`
}

type row struct {
	event
	ExitCode value.Count  `json:"exit_code" col:"CODE,width=4,right" help:"exit code, from 0 to 255; absent if a signal ended the process"`
	Sig      value.Count  `json:"sig" col:"SIG,width=3,right" help:"number of the signal that ended the process; absent without one"`
	Signal   value.Signal `json:"signal" col:"SIGNAL,width=10" help:"name of that signal"`
	Core     bool         `json:"core_dumped" col:"CORE,width=5" help:"whether a core dump was written"`
	Result   string       `json:"result" col:"EXIT_CODE,width=9" help:"0, the exit code, or the signal as text"`
	UTC      value.UTC    `json:"time_utc" col:"TIME-UTC,width=12,extra" help:"time of the exit in UTC, as time; text shows milliseconds"`
	Label    string       `json:"label" col:"LABEL,width=8,extra" help:"text of --label; absent without it"`
}

// Decode splits the status.
func (r *row) Decode(_ []byte) error {
	status := unix.WaitStatus(r.Status)
	sig := r.Status & 0x7f
	r.ExitCode = value.Count{N: uint64(status >> 8 & 0xff), Given: sig == 0}
	r.Sig = value.Count{N: uint64(sig), Given: sig != 0}
	r.Signal = value.Signal(sig)
	r.Core = sig != 0 && r.Status&0x80 != 0
	switch {
	case r.Core:
		r.Result = fmt.Sprintf("signal %d (%s), core dumped", sig, r.Signal)
	case sig != 0:
		r.Result = fmt.Sprintf("signal %d (%s)", sig, r.Signal)
	case r.ExitCode.N != 0:
		r.Result = fmt.Sprintf("code %d", r.ExitCode.N)
	default:
		r.Result = "0"
	}
	return nil
}

// Tool is the definition of exitsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "exitsnoop",
	Category: "process",
	Summary:  "Trace process exits: exit code or signal, and age",
	Description: `Shows each process when its last thread exits, with the exit code, or the signal that ended it, and its age. With -T it shows each thread.

Exits are traced at sched:sched_process_exit, in the context of the exiting thread. The result of a process is the status that wait(2) returns to its parent: that of exit_group(2) or of the signal, whichever thread caused it. Name, user and age are those of the thread-group leader, even if it exited before. An execve(2) ends the other threads of a process, but not the process.

A process that is still in memory as a zombie has been shown: its row is written at its exit, not when its parent waits for it. Kernel threads are included.`,
	Peers: []string{
		"--utc, with or without -t, shows TIME-UTC, as in BCC; -t alone shows the local time without its zone. In JSON, time has the zone, and --utc adds time_utc.",
		"-T is -T and --threaded of libbpf-tools, and --per-thread of BCC. With -T, each row has the exit code of the thread.",
		"EXIT_CODE names signals with SIG, as in signal 9 (SIGKILL).",
		"A process is shown when its last thread exits, with the status that its parent receives. The peers show the exit of the thread-group leader: of a process whose leader exits first, they show the exit code of that thread, while the process continues; and they show an exit when another thread than the leader calls execve(2).",
	},
	Examples: []string{
		"exitsnoop                            # all processes",
		"exitsnoop -x -t                      # failures, with the time",
		"exitsnoop --filter 'core_dumped'     # crashes with a core dump",
		"exitsnoop --container web -T         # threads of a container",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	columns := []string{"comm", "pid", "ppid", "tid", "age_ns", "result"}
	e := &source.Events[row]{
		Headers:     map[string]string{"comm": "PCOMM"},
		BufferBytes: 4 << 20,
		Delay:       100 * time.Millisecond,
		Row:         row{Label: o.Label},
		Keep:        func(r *row) bool { r.UTC = value.UTC(r.Time); return true },
	}
	if o.Label != "" {
		columns = append([]string{"label"}, columns...)
		e.Extra = []string{"label"}
	}
	switch {
	case o.UTC:
		columns = append([]string{"time_utc"}, columns...)
		e.Extra = append(e.Extra, "time_utc")
	case o.Timestamp:
		columns = append([]string{"time"}, columns...)
	}
	e.Columns = columns
	return e, nil
}
