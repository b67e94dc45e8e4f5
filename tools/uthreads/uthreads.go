// Package uthreads traces the creation of threads.
package uthreads

import (
	"fmt"

	"github.com/corescope/corescope/internal/language"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh uthreads.bpf.c

type options struct{ language.Process }

type event struct {
	value.Task
	ID       uint64
	Routine  uint64
	Language uint32
	NativeID uint32 `json:"native_id" col:"NATIVE,width=7" help:"thread ID of the new thread, in the initial PID namespace" btf:"native_id"`
	Started  bool
	IsDaemon uint8 `btf:"daemon"`
	NameLen  uint8
	_        [5]byte
	Raw      [80]byte `btf:"name"`
}

type row struct {
	event
	source.Elapsed
	Kind        string        `json:"kind" col:"TYPE,width=8" help:"start or stop: of a thread of Java; pthread: start of a thread of the C library"`
	JavaID      value.Count   `json:"java_id" col:"JAVAID,width=8,right" help:"ID of the thread in the Java runtime; absent for threads of the C library"`
	IDs         string        `json:"ids" col:"ID,width=16" help:"Java: R= and the ID in the runtime, N= and the thread ID; C: the thread ID"`
	Daemon      value.Count   `json:"is_daemon" col:"DAEMON,width=6,right" help:"Java: 1 for a thread that does not keep the program alive, otherwise 0; absent for threads of the C library"`
	Address     value.Address `json:"routine" col:"ADDRESS,width=16" help:"C: address of the function that the thread executes; 0 in Java"`
	Description value.Bytes   `json:"description" col:"DESCRIPTION,width=30" help:"Java: name of the thread (at most 80 bytes); C: name of the function that the thread executes, MODULE+OFFSET or the address if it has no symbol or the process had exited when the name was looked up"`

	env   *tool.Env
	stack value.Stack
}

// Decode describes the thread. In C a stack follows the event, whose frame is the function.
func (r *row) Decode(tail []byte) error {
	r.Address = value.Address(r.Routine)
	if language.Name(r.Language) == "java" {
		r.Kind = map[bool]string{true: "start", false: "stop"}[r.Started]
		r.IDs = fmt.Sprintf("R=%d/N=%d", r.ID, r.NativeID)
		r.JavaID = value.Count{N: r.ID, Given: true}
		r.Daemon = value.Count{N: uint64(r.IsDaemon), Given: true}
		r.Description = value.BytesOf(r.Raw[:], r.NameLen)
		return nil
	}
	r.Kind, r.IDs, r.JavaID, r.Daemon = "pthread", fmt.Sprint(r.NativeID), value.Count{}, value.Count{}
	r.stack = r.env.UserStack(r.stack, tail)
	if len(r.stack) == 0 {
		r.stack = append(r.stack, value.Frame{Address: r.Address})
	}
	r.Description = value.Bytes(r.stack[0].Name())
	return nil
}

// Tool is the definition of uthreads.
var Tool = tool.Define(tool.Spec{
	Name:     "uthreads",
	Also:     language.Aliases("threads", "java"),
	Category: "runtime",
	Summary:  "Trace new threads in Java and C (pthread_create), with their names or functions",
	Description: `Shows the threads that programs create: in Java their start and their stop, with the name of the thread; in C their start, with the function that they execute.

The hooks are the USDT probes hotspot:thread__start and thread__stop (Java), which run in the thread itself, and in C the function pthread_create(3) with the tracepoint task_newtask, which run in the thread that creates the new one. A pthread_create that fails is not shown. A thread of Java is also one of the C library, so without -l it has a row pthread too. Runtimes in containers and in processes that start later are traced too.

Threads that are created without pthread_create are not shown: those of Go programs without cgo, and of 32-bit programs. pidpersec(8) counts all threads, threadsnoop(8) shows calls of pthread_create.

` + language.Builds,
	Peers: []string{
		"Without a PID all processes are traced. With a PID the language is detected; -l java or -l c selects one.",
		"In C the hook is pthread_create with task_newtask, not the USDT probe libpthread:pthread_start, which Debian's glibc does not have. The ID is the thread ID; BCC shows the address of the function.",
		"-l none is -l c.",
	},
	Examples: []string{
		"uthreads            # all new threads",
		"uthreads 1234       # of one process",
		"uthreads -l java    # only those of Java, with their names",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "duration": "d"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if o.Language == "none" {
		o.Language = "c"
	}
	src := &source.Events[row]{
		Plan:        tool.Plan{Keep: tool.UserStackNeeds(), RowNoun: "thread"},
		Columns:     []string{"elapsed_ns", "ids", "kind", "description"},
		Headers:     map[string]string{"elapsed_ns": "TIME"},
		BufferBytes: 1 << 20,
		UserStacks:  &stacktrace.UserStacks{Unwind: "fp"},
		Row:         row{env: env},
	}
	if len(env.PIDs) != 1 {
		src.Columns = []string{"elapsed_ns", "pid", "comm", "ids", "kind", "description"}
	}
	hooks := language.Hooks{"java": {"java"}, "c": {"c", "create", "ended"}}
	return src, o.Plan(&src.Plan, loadBpf, hooks, env.PIDs)
}
