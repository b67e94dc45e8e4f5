// Package memleak shows by stacks what memory is allocated and not freed.
package memleak

import (
	"fmt"
	"os"
	"time"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh memleak.bpf.c

type options struct {
	Interval flags.Duration `pos:"interval" help:"time between reports, in seconds or as 500ms; 5 s without it, but for stacks as a document"`
	Count    uint64         `pos:"count" help:"number of reports"`
	tool.StackOptions
	tool.UserStacks
	Command string `flag:"command,c" arg:"COMMAND" help:"run this command and look at its process"`
	Trace   bool   `flag:"trace,t" bpf:"targ_trace" help:"show each allocation and each free as it happens, and no stacks"`
	Allocs  bool   `flag:"show-allocs,a" help:"a row for each allocation, with its address and age"`
	Older   uint64 `flag:"older,o" arg:"MS" help:"only what was allocated that many milliseconds ago and more; of a process that has ended, all"`
	Combine bool   `flag:"combined-only,C" help:"for the peers' sake: what is allocated is kept all the same"`
	Missing bool   `flag:"wa-missing-free,F" help:"for the peers' sake: what is allocated anew was freed, always"`
	Sample  uint32 `flag:"sample-rate,s" arg:"N" bpf:"targ_sample" help:"look at one of N allocations, drawn by lot"`
	Top     uint64 `flag:"top,T" arg:"N" help:"only the N greatest rows of each report; text shows 10 without it"`
	MinSize uint64 `flag:"min-size,z" arg:"BYTES" bpf:"targ_min_bytes" help:"only allocations of that many bytes and more"`
	MaxSize uint64 `flag:"max-size,Z" arg:"BYTES" bpf:"targ_max_bytes" help:"only allocations of that many bytes and less"`
	Object  string `flag:"obj,O" arg:"FILE" help:"the library or program that has the allocator, as a path or a name that may have * in it"`
	Prefix  string `flag:"symbols-prefix,S" arg:"PREFIX" help:"what the names of the allocator's functions begin with, as je_ where it is je_malloc"`
	PerCPU  bool   `flag:"percpu,P" help:"look at the kernel's allocator of memory for each CPU, and at no other"`
	Kernel  bool   `flag:"kernel" help:"look at the kernel's allocators though there is a --pid: at what that process allocates there"`
	Sort    string `flag:"sort" arg:"COLUMN" help:"sort by size or count"`
	Most    uint32 `flag:"max-allocations" arg:"N" help:"have room for so many allocations"`
}

// Tool is memleak.
var Tool = tool.Define(tool.Spec{
	Name:     "memleak",
	Category: "memory",
	Summary:  "Show memory that is allocated and not freed, by stacks",
	Description: `Shows by stacks what memory is allocated while the tool runs, and not freed until it reports: its bytes, as they were asked for, and in how many allocations. What is there longer and longer, and more with each report, leaks. Each report is of all that is allocated at its time, since the tool was started; what is younger than half a second (--older) is left out, as most of it will be freed.

With --pid or --command it is the memory of a process: what it allocates by malloc(3), calloc(3), realloc(3), reallocarray(3), posix_memalign(3), aligned_alloc(3), memalign(3), valloc(3), pvalloc(3), mmap(2) and mremap(2), and frees by free(3), realloc(3) and munmap(2). An allocation within another, as that of malloc within calloc, is a part of it and counts once. realloc and mremap free what they are given, and allocate it anew; if they fail, all stays. A call that fails allocates nothing. Where the begin or the end of a mapping is unmapped the rest stays; the unmapping of a middle is not seen. When the process executes another program, what it had is forgotten. What is left when it ends is shown, and no age asked for. Its children are other processes.

The functions are those of the C library, jemalloc, tcmalloc and mimalloc, whichever of these the process has mapped, in its container if it is in one, and those of its program, if that has an allocator linked in. --obj names another file.

Without these it is the memory of the kernel: what is allocated by kmalloc, from caches of objects (kmem_cache_alloc), and as pages. The allocators of objects take their memory from the allocator of pages: what is in rows of both is the same memory. Among the pages are those that processes have mapped. Not seen are objects and pages that are allocated in bulk. The task filters are of the task that allocates; who frees does not matter.

Objects that are freed in bulk or by kfree_rcu are seen to be freed, as soon as they are handed over for that, where the kernel has fentry or kprobes; elsewhere they are shown until their memory is allocated anew. Before 5.12 an object of a cache that is allocated anew at the moment when it is freed may be left out.

The counters at the end: unseen_frees, of what was not seen to be allocated or was not wanted (--min-size, --max-size, --sample-rate); missed_frees, allocations of memory that was not seen to be freed before; unseen_calls, returns of calls that were not seen to begin.`,
	Peers: []string{
		"-p is --pid. With an allocation in a container, its C library is found.",
		"-c runs its command by the shell, and the run ends with it. The report then has what was left, however young.",
		"-t shows rows and no reports beside them; peers print to trace_pipe.",
		"-a shows a row for each allocation, with its stack; peers list them above the stack that they share.",
		"-C and -F change nothing: all allocations are kept until they are freed, and one of memory that is held already takes the other's place.",
		"-s draws allocations by lot, where peers take every N-th; what is shown is not multiplied by N.",
		"-T limits JSON, CSV and graphs too; without it these have all rows.",
		"realloc that fails leaves what there was, where peers take it for freed; calls within calls count once.",
		"Pages that are freed in parts are subtracted part by part.",
	},
	Overhead: "An allocation of a process and its free take 16 us more, of which 2.4 us are in the programs and the rest in the traps that lead to them (20,000 of each, a busy virtual machine with kernel 6.18); other processes take no longer. An allocation of the kernel takes 3 to 4 us more and a free 0.2 to 0.7 us. The room for allocations (--max-allocations) is 110 bytes for each.",
	Examples: []string{
		"memleak -p 1234                              # what a process allocates, each five seconds",
		"memleak -p 1234 -o 60000 60 10               # what is older than a minute, each minute",
		"memleak -c './server --once' -T 3            # what a command leaves when it ends",
		"memleak -p 1234 --duration 1m --output svg > leak.svg  # a flame graph",
		"memleak -p 1234 -O 'libjemalloc.so*' -S je_  # of another allocator",
		"memleak -z 1024 --filter 'count > 100'       # the kernel's, of larger objects",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{
	StackOptions: tool.DefaultStacks(), UserStacks: tool.DefaultUserStacks(), Older: 500, Sample: 1, MaxSize: 1<<64 - 1, Sort: "size", Most: 1 << 20,
}, build)

// allocators are files that have one, by the usual names.
var allocators = []string{
	"libc.so.6", "libc-2.*.so", "ld-musl-*.so.1", "libc.musl-*.so.1", "libjemalloc.so*", "libtcmalloc*.so*", "libmimalloc*.so*",
}

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.plan(env)
	if err != nil {
		return nil, err
	}
	if o.Trace {
		return &tool.Events[event]{
			Plan: plan, Columns: []string{"time", "pid", "tid", "comm", "function", "bytes", "address"}, BufferBytes: 4 << 20,
		}, nil
	}
	return o.stacks(plan), nil
}

// plan takes the hooks of the process or of the kernel.
func (o *options) plan(env *tool.Env) (p tool.Plan, err error) {
	if o.Sample == 0 || o.Most == 0 {
		return p, fmt.Errorf("--sample-rate and --max-allocations are 1 at least")
	}
	p = tool.Plan{
		Exec:       o.Command,
		Variables:  map[string]any{"page_bytes": uint64(os.Getpagesize())},
		MapEntries: map[string]uint32{"held": o.Most},
		Optional:   []string{"kmalloc_node", "cache_alloc_node", "bulk_free", "rcu_free"},
		Files:      map[string]binary.Files{"libc": {}},
	}
	user, slabs, percpu := []string{"user", "exec", "ended"},
		[]string{"kmalloc", "kmalloc_node", "kfree", "cache_alloc", "cache_alloc_node", "cache_free", "page_alloc", "page_free", "bulk_free", "rcu_free"},
		[]string{"percpu_alloc", "percpu_free"}
	switch {
	case o.PerCPU:
		p.Without = append(user, slabs...)
	case o.Kernel || o.Command == "" && len(env.PIDs) == 0:
		p.Without = append(user, percpu...)
	default:
		p.Without = append(slabs, percpu...)
		p.Files["libc"] = o.files()
	}
	return p, nil
}

func (o *options) files() binary.Files {
	f := binary.Files{Names: allocators, Alone: true, Prefix: o.Prefix}
	if _, err := os.Stat(o.Object); err == nil {
		f.Paths = []string{o.Object}
	} else if o.Object != "" {
		f.Names = []string{o.Object}
	}
	return f
}

// isYoung tells of an allocation that is not to be shown yet.
func (o *options) isYoung(k *tool.HeldKey, h *held, now tool.Moment) bool {
	older := time.Duration(o.Older) * time.Millisecond
	return now.Since(h.Time) < older && (k.PID == 0 || !now.Ended(k.PID))
}
