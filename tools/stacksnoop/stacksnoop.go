// Package stacksnoop shows the kernel stack of each call of a function.
package stacksnoop

import (
	"encoding/binary"
	"errors"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh stacksnoop.bpf.c

type options struct {
	Function string `pos:"function" help:"kernel function or tracepoint, such as ext4_sync_fs, vfs_* or t:sched:sched_switch"`
	Offset   bool   `flag:"offset,s" help:"show the offset of each address from the start of its function"`
	Task     bool   `flag:"task,v" help:"show name, process and CPU of the calling task too"`
}

type event struct {
	value.Task
	Target   uint32
	CPU      uint32 `json:"cpu" col:"CPU,width=3,right" help:"CPU of the call"`
	StackLen uint32
	_        uint32
}

type row struct {
	event
	source.Elapsed
	Func   string      `json:"func" col:"FUNCTION,width=16" help:"name of the function; of a tracepoint category/event"`
	Module string      `json:"module" col:"MODULE,width=16" help:"module of the function; absent for the kernel itself"`
	Stack  value.Stack `json:"kernel_stack" col:"KSTACK" help:"kernel stack trace, innermost frame first: at the entry of a function it starts with that function; without --offset frames with a name have no address; text shows it below the row"`

	env    *tool.Env
	places []target.Place
	offset bool
	addrs  []uint64
}

// Decode names the function and its callers.
func (r *row) Decode(tail []byte) error {
	if int(r.Target) >= len(r.places) {
		return errors.New("unknown function")
	}
	r.Func, r.Module = r.places[r.Target].Name, r.places[r.Target].Module
	r.addrs = r.addrs[:0]
	for range min(int(r.StackLen), len(tail)) / 8 {
		r.addrs = append(r.addrs, binary.NativeEndian.Uint64(tail))
		tail = tail[8:]
	}
	r.Stack = r.env.KernelStack(r.Stack[:0], r.addrs)
	for i := range r.Stack {
		if f := &r.Stack[i]; !r.offset && f.Symbol != "" {
			f.Address, f.Offset = 0, 0
		}
	}
	return nil
}

// Tool is the definition of stacksnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "stacksnoop",
	Category: "function",
	Summary:  "Trace calls of a kernel function with the kernel stack trace of each",
	Description: `Shows the kernel stack trace of each call of a kernel function, or of each hit of a tracepoint: which code calls it. For frequent functions use stackcount, which counts equal stacks in the kernel.

` + target.Manual + `

In a pattern * matches any text and ? any character. The stack is that of the current task; if the function runs in an interrupt, the stack also contains the code that was interrupted, and the task is the interrupted one.

Function names need CAP_SYSLOG; otherwise only addresses are shown.`,
	Peers: []string{
		"-v is --task; it also adds COMM, PID and CPU, as in BCC. --verbose has no letter.",
		"Several functions can be traced with a pattern, and tracepoints where functions cannot be traced.",
		"trace -K shows arguments too, and trace -U user stacks.",
	},
	Examples: []string{
		"stacksnoop ext4_sync_fs                  # which code flushes a file system",
		"stacksnoop -s -v tcp_retransmit_skb      # with offsets, and the task",
		"stacksnoop -p 1234 vfs_unlink            # one process",
		"stacksnoop -v t:signal:signal_generate   # which code sends signals",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "verbose": ""},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	columns := []string{"elapsed_ns", "func", "kernel_stack"}
	if o.Task {
		columns = []string{"elapsed_ns", "comm", "pid", "cpu", "func", "kernel_stack"}
	}
	e := &source.Events[row]{
		Columns: columns, BufferBytes: 8 << 20, Row: row{env: env, offset: o.Offset},
		Plan: tool.Plan{RowNoun: "call", Keep: []system.Capability{system.CapSyslog}},
	}
	e.Resolve = func(p *tool.Plan, _ *tool.Kernel) (err error) {
		e.Row.places, err = o.find(p)
		return flags.Usage(err)
	}
	return e, nil
}

// find sets the plan's targets.
func (o *options) find(p *tool.Plan) ([]target.Place, error) {
	spec, err := target.Parse(o.Function, false)
	if err == nil && (spec.Return || spec.Kind != target.Kernel && spec.Kind != target.Tracepoint) {
		err = errors.New("only calls of kernel functions, and tracepoints, are supported: trace -U shows user stacks")
	}
	if err != nil {
		return nil, err
	}
	finder := target.Finder{Note: p.Note}
	places, err := finder.Find(spec)
	if err != nil {
		return nil, err
	}
	p.Instances, places = target.Instances(places, spec.IsPattern())
	return places, nil
}
