// Package naptime traces voluntary sleeps.
package naptime

import (
	"strconv"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh naptime.bpf.c

type options struct{}

type event struct {
	value.Task
	Nanoseconds uint64 `btf:"request_ns"`
	PPID        uint32 `json:"ppid" col:"PPID,width=7" help:"process ID of the parent, in the initial PID namespace"`
	NR          uint32
	ABI         uint32
	Known       bool
	Absolute    bool `json:"absolute" col:"ABS,width=5" help:"whether the call gives the time at which the sleep ends (TIMER_ABSTIME), instead of its duration"`
	_           [2]uint8
	ParentComm  value.Comm `json:"parent_comm" col:"PCOMM,width=16" help:"name of the parent process's thread"`
}

// duration is absent if it is unknown.
type duration struct {
	value.Elapsed
	known bool
}

func (v *duration) Absent() bool { return !v.known }

// AppendText appends seconds, with microseconds.
func (v *duration) AppendText(b []byte) []byte {
	return strconv.AppendFloat(b, float64(v.Elapsed)/1e9, 'f', 6, 64)
}

type row struct {
	event
	Request duration `json:"request_ns" col:"SECONDS,width=12,right" help:"requested duration of the sleep, at most 9223372036854775807 as in the kernel (292 years); for an end on CLOCK_MONOTONIC or CLOCK_BOOTTIME, in the time namespace of the task, the time until then; a duration of CPU time for a clock of CPU time; absent for an end on another clock, if the request is invalid (EINVAL), and if its memory is not resident; text shows seconds"`
	Syscall string   `json:"syscall" col:"SYSCALL,width=22" help:"name of the system call"`

	calls *value.Syscalls
}

// Decode names the call.
func (r *row) Decode(_ []byte) error {
	r.Request = duration{value.Elapsed(r.Nanoseconds), r.Known}
	r.Syscall = r.calls.Name(value.ABI(r.ABI), r.NR)
	return nil
}

// Tool is the definition of naptime.
var Tool = tool.Define(tool.Spec{
	Name:     "naptime",
	Category: "process",
	Summary:  "Trace voluntary sleeps: sleep(1), nanosleep() and clock_nanosleep() with their duration",
	Description: `Shows each call of nanosleep(2) and clock_nanosleep(2) when it begins, of 64-bit and 32-bit tasks, with the duration that it requests. sleep(3), usleep(3) and the sleep functions of most languages use these calls. They show programs that poll, and delays that are part of a program.

The duration is the requested one: a signal can end a sleep before, and a task continues only when it gets a CPU (runqlat(8)). A sleep that continues after a signal by restart_syscall(2) has one row. time.Sleep of Go programs waits in futex(2) or epoll_wait(2), which are not traced; the Go runtime itself calls nanosleep for 20 us and more, also that of this tool (--filter 'comm != "corescope"').`,
	Peers: []string{
		"32-bit tasks are traced too. SECONDS has six decimals, in bpftrace three; for a sleep until a given time it is the time until then, where bpftrace shows that time.",
	},
	Overhead: "The program at the start of system calls took 64 ns per call, of which about 20 are the measurement (3.8 million calls on a busy machine, --stats).",
	Examples: []string{
		"naptime                                    # all sleeps",
		"naptime --filter 'request_ns < 1000000'    # short sleeps: polling",
		"naptime --comm cron                        # sleeps of one program",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(_ *options, _ *tool.Env) (tool.Source, error) {
	return &source.Events[row]{
		Plan:        tool.Plan{RowNoun: "sleep"},
		Columns:     []string{"time", "ppid", "parent_comm", "pid", "comm", "request_ns"},
		BufferBytes: 4 << 20,
		Row:         row{calls: value.NewSyscalls()},
	}, nil
}
