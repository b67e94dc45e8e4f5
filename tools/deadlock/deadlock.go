// Package deadlock finds lock-order inversions of mutexes.
package deadlock

import (
	"errors"
	"fmt"
	"os"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh deadlock.bpf.c -type kind

type options struct {
	PID    uint32   `pos:"pid" sets:"pid" min:"1" help:"process to trace; all processes by default, which slows down every program that uses mutexes"`
	Binary string   `flag:"binary" arg:"FILE" help:"file with the functions; by default the C library, libpthread, and the executable of the process; an absolute path is first looked up below the root of the process"`
	Graph  string   `flag:"dump-graph" arg:"FILE" help:"write all observed orders of mutexes to this file at the end, as JSON"`
	Lock   []string `flag:"lock-symbols" arg:"FUNCTION" help:"trace these functions instead of pthread_mutex_lock; their first argument is the mutex"`
	Unlock []string `flag:"unlock-symbols" arg:"FUNCTION" help:"trace these functions instead of pthread_mutex_unlock"`
	Thread uint32   `flag:"threads,t" arg:"N" min:"1" max:"4194304" help:"maximum number of threads"`
	Edges  uint32   `flag:"edges,e" arg:"N" min:"1" max:"4194304" help:"maximum number of orders of mutexes that are sent only once"`
	Stacks uint32   `flag:"stacktraces,s" arg:"N" min:"1" help:"no effect, for compatibility with BCC: the number of stacks is not limited"`
	stacktrace.UserStacks
}

// mutex mirrors struct mutex_id.
type mutex struct {
	Address           uint64
	Generation, Depth uint32
}

type event struct {
	value.Task
	From, To         mutex
	Held             [16]mutex
	Space, Kind      uint32
	ToSize, FromSize uint32
}

type row struct {
	event
	Cycle   uint64        `json:"cycle" col:"CYCLE,width=5,right" help:"number of the cycle; its rows have the same number"`
	Mutexes uint32        `json:"mutexes" col:"MUTEXES,width=7,right" help:"number of mutexes, and of threads, in the cycle"`
	Step    string        `json:"step" col:"STEP,width=8" help:"acquires: the thread acquires the mutex while it holds another one of the cycle; holds: where it acquired that one before"`
	Mutex   value.Address `json:"mutex" col:"MUTEX,width=16" help:"address of the mutex in the process"`
	Holding value.Address `json:"holding" col:"HOLDING,width=16" help:"mutex that the thread holds while it acquires the other one; 0 in rows with step holds"`
	Stack   value.Stack   `json:"user_stack" col:"USTACK" help:"user stack trace of the call that acquires the mutex, innermost frame first; text shows it below the row; in the first stacks of a process not selected by --pid, functions without frame pointers are missing"`

	env    *tool.Env
	graphs *graphs
}

// Tool is the definition of deadlock.
var Tool = tool.Define(tool.Spec{
	Name:     "deadlock",
	Category: "process",
	Summary:  "Find potential deadlocks: lock-order inversions of pthread mutexes in a running process",
	Description: `Reports when threads of a process acquire mutexes in orders that can lead to a deadlock: one thread acquires B while it holds A, another one acquires A while it holds B, or a longer cycle of up to eight mutexes. The threads need not wait for each other during the run; if they do, the deadlock is reported too, because orders are observed when a thread begins to acquire a mutex.

Each cycle is shown once, when its last order is observed, with two rows per order: the mutex that the thread acquires, and the one that it holds, each with the stack trace of the call that acquires it. The time and the thread are those of the first observation of this order. An order that was observed before the tool started is unknown.

Traced are pthread_mutex_lock(3), and pthread_cond_wait(3), pthread_cond_timedwait(3) and pthread_cond_clockwait(3), which acquire the mutex again. pthread_mutex_trylock(3), pthread_mutex_timedlock(3) and pthread_mutex_clocklock(3) do not wait forever: a mutex that they acquire is held, but acquiring it cannot be a part of a deadlock. Calls that fail acquire nothing. A recursive mutex that a thread already holds is not acquired again. pthread_mutex_init(3) and pthread_mutex_destroy(3) begin a new mutex at the same address.

Not reported are cycles that cannot become a deadlock: if the same thread made all orders, or two orders that only one thread each has made are of the same thread; and if two of the threads hold another common mutex meanwhile (a gate lock).

False reports are possible for mutexes in memory that is used again without pthread_mutex_init or pthread_mutex_destroy, such as std::mutex of C++ on Linux, and for locks that are never taken concurrently for other reasons, such as start and end of a program. Not observed are mutexes of Go, Rust and other languages that use futexes themselves, read-write locks, spin locks, semaphores, mutexes shared by processes (each process is observed on its own), and 32-bit programs. std::mutex of C++ uses pthread_mutex_lock. A thread can hold up to 16 mutexes; more are counted as lost (map_full). A fork leaves its mutexes unknown in the child.

` + tool.ReturnsManual,
	Peers: []string{
		"The tool does not end with the first cycle; for that, use --limit with the number of rows.",
		"--binary is not needed for programs that are linked dynamically.",
		"Without a PID, all processes are observed.",
		"Cycles of a single thread, cycles below a gate lock and recursive mutexes, which BCC reports, are not reported. Condition variables, and the results of calls, are observed.",
		"BCC shows names of global mutexes, and where the threads were created. Both are missing here.",
		"--verbose (BCC: numbers of mutexes and edges) is the common flag; --dump-graph writes them.",
		"-t is --threads and -e is --edges. If there are more edges, the oldest are sent again. -s has no effect.",
	},
	Examples: []string{
		"deadlock 1234                          # one process",
		"deadlock 1234 --dump-graph graph.json  # with all observed orders at the end",
		"deadlock 1234 --binary /opt/server     # a program with its own pthread_mutex_lock",
		"deadlock 1234 --binary /opt/server --lock-symbols my_lock --unlock-symbols my_unlock # other functions",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p"},
}, options{Thread: 65536, Edges: 65536, Stacks: 65536, UserStacks: stacktrace.DefaultUserStacks()}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if (len(o.Lock) == 0) != (len(o.Unlock) == 0) {
		return nil, errors.New("--lock-symbols and --unlock-symbols need each other: a mutex that is never released is always held")
	}
	g := &graphs{keep: o.Graph != ""}
	e := &source.Events[row]{
		Plan: tool.Plan{
			Files:      map[string]binary.Files{"libc": o.files()},
			Variables:  map[string]any{"targ_custom": len(o.Lock) > 0},
			MapEntries: map[string]uint32{"threads": o.Thread, "calls": o.Thread, "slot_stacks": o.Thread, "orders": o.Edges, "generations": o.Edges},
			Keep:       tool.UserStackNeeds(),
			RowNoun:    "inversion",
		},
		Columns:     []string{"cycle", "mutexes", "pid", "tid", "comm", "step", "mutex", "holding", "user_stack"},
		BufferBytes: 8 << 20,
		UserStacks:  &o.UserStacks,
		Row:         row{env: env, graphs: g},
	}
	if o.Graph != "" {
		var f *os.File
		e.Resolve = func(*tool.Plan, *tool.Kernel) (err error) {
			f, err = os.Create(o.Graph) // now, because a run can be long, and drops capabilities
			return err
		}
		e.End = func() error { return g.write(f) }
	}
	return e, nil
}

// files returns the files with the functions.
func (o *options) files() binary.Files {
	f := binary.Files{Names: append(binary.Libc(), "libpthread.so.0", "libpthread-2.*.so"), Alone: true}
	if o.Binary != "" {
		f.Paths = []string{o.Binary}
	}
	if len(o.Lock) > 0 {
		f.Renamed = map[string]string{}
		for _, name := range o.Lock {
			f.Renamed[name] = "pthread_mutex_lock"
		}
		for _, name := range o.Unlock {
			f.Renamed[name] = "pthread_mutex_unlock"
		}
	}
	return f
}

// Decode adds the order to the graph of its process. Next returns the rows.
func (r *row) Decode(tail []byte) error {
	if kind(r.Kind) == bpfKindEND {
		r.graphs.drop(r.PID)
		return source.ErrMore
	}
	if int(r.ToSize+r.FromSize) > len(tail) {
		return fmt.Errorf("tail has %d bytes, want %d and %d of stacks", len(tail), r.ToSize, r.FromSize)
	}
	e := newEdge(&r.event)
	e.toStack = r.env.UserStack(nil, tail[:r.ToSize])
	e.fromStack = r.env.UserStack(nil, tail[r.ToSize:][:r.FromSize])
	r.graphs.add(e)
	return source.ErrMore
}

type kind = bpfKind

// Next sets the row to the next one of the cycles that were found.
func (r *row) Next(bool) bool {
	if len(r.graphs.found) == 0 {
		return false
	}
	f := r.graphs.found[0]
	r.graphs.found = r.graphs.found[1:]
	r.event, r.Cycle, r.Mutexes = f.edge.event, f.cycle, uint32(f.mutexes)
	r.Step, r.Mutex, r.Holding, r.Stack = "acquires", value.Address(f.edge.To.Address), value.Address(f.edge.From.Address), f.edge.toStack
	if f.holds {
		r.Step, r.Mutex, r.Holding, r.Stack = "holds", r.Holding, 0, f.edge.fromStack
	}
	return true
}
