// Package threadsnoop traces the creation of threads by libc.
package threadsnoop

import (
	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh threadsnoop.bpf.c

type options struct {
	Timestamp bool `flag:"timestamp,T" help:"show the time of day, instead of the time since the start"`
}

type event struct {
	value.Task
	Routine value.Address `json:"routine" col:"ADDRESS,width=16" help:"address of the function that the new thread executes"`
}

type row struct {
	event
	source.Elapsed
	Func value.Name `json:"func" col:"FUNC,width=30" help:"name of that function; MODULE+OFFSET or the address if it has no symbol, or if the process had exited when the name was looked up"`

	env   *tool.Env
	stack value.Stack
}

// Decode symbolizes the function: a stack with this frame follows the event.
func (r *row) Decode(tail []byte) error {
	r.stack = r.env.UserStack(r.stack, tail)
	if len(r.stack) == 0 {
		r.stack = append(r.stack, value.Frame{Address: r.Routine})
	}
	r.Func = r.stack[0].Name()
	return nil
}

// Tool is the definition of threadsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "threadsnoop",
	Category: "process",
	Summary:  "Trace new threads (pthread_create) with the function that they execute",
	Description: `Shows each call of pthread_create(3), with the name of the function that the new thread executes. The task columns describe the creator. A call is shown when it begins, also if it fails.

The function is traced in every libc (glibc and musl) and libpthread that a process has mapped, including those in containers. A musl that is installed in /lib or /usr/lib/*-linux-musl is traced from the start, even if no process has mapped it. If another libc is mapped later, such as in a new container, the tool attaches to it within milliseconds; calls before that are missed. With --pid the executable is traced too, because it may have libc statically linked.

Threads that are created without pthread_create are not shown: those of thrd_create(3) in glibc, of Go programs without cgo, and of 32-bit programs. pidpersec(8) counts all threads. For programs in other languages the function is often one of their runtime, which then calls that of the program.`,
	Peers: []string{
		"TIME(s) is the time since the start in seconds with three decimals; BCC and bpftrace show whole milliseconds. -T shows the time of day.",
		"The libraries of all processes are traced; the peers trace one libpthread or libc.",
	},
	Examples: []string{
		"threadsnoop                        # all new threads",
		"threadsnoop -p 1234 --columns +routine  # of one process, with the address of the function",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	libraries := append(binary.Libc(), "libpthread.so.0", "libpthread-2.*.so")
	e := &source.Events[row]{
		Plan: tool.Plan{
			Files: map[string]binary.Files{"pthread": {Names: libraries, Installed: binary.InstalledMusl()}}, Keep: tool.UserStackNeeds(), RowNoun: "call",
		},
		Columns:     []string{"elapsed_ns", "pid", "comm", "func"},
		BufferBytes: 1 << 20,
		UserStacks:  &stacktrace.UserStacks{Unwind: "fp"},
		Row:         row{env: env},
	}
	if o.Timestamp {
		e.Columns[0] = "time"
	}
	return e, nil
}
