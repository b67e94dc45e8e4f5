// Package memleak shows outstanding memory allocations by stack trace.
package memleak

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh memleak.bpf.c -type function

type options struct {
	Interval flags.Duration `pos:"interval" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms; default 5 s, except for output formats that are one document"`
	Count    uint64         `pos:"count" min:"1" help:"number of reports; unlimited by default"`
	source.StackOptions
	stacktrace.UserStacks
	Command string `flag:"command,c" arg:"COMMAND" help:"run this command, with a shell if it contains shell syntax, and trace all its processes until it ends"`
	Trace   bool   `flag:"trace,t" bpf:"targ_trace" help:"show each allocation and each free as it happens, without stacks"`
	Allocs  bool   `flag:"show-allocs,a" help:"one row per allocation, with its address and age"`
	Older   uint64 `flag:"older,o" arg:"MS" max:"9223372036854" help:"only allocations that are at least this number of milliseconds old; all allocations of processes that have exited"`
	Combine bool   `flag:"combined-only,C" help:"no effect, for compatibility with BCC: allocations are always kept until they are freed"`
	Missing bool   `flag:"wa-missing-free,F" help:"no effect, for compatibility with BCC: an allocation always replaces an earlier one at the same address"`
	Sample  uint32 `flag:"sample-rate,s" arg:"N" min:"1" bpf:"targ_sample" help:"trace a random sample of one in N allocations"`
	Top     uint64 `flag:"top,T" arg:"N" min:"1" help:"show only the N greatest rows of each report; default 10 in text"`
	MinSize uint64 `flag:"min-size,z" arg:"BYTES" bpf:"targ_min_bytes" help:"only allocations of at least this number of bytes"`
	MaxSize uint64 `flag:"max-size,Z" arg:"BYTES" bpf:"targ_max_bytes" help:"only allocations of at most this number of bytes"`
	Object  string `flag:"obj,O" arg:"FILE" help:"library or program that contains the allocator: a path, or a name that can contain *; with --pid an absolute path is first looked up below the root of the process"`
	Prefix  string `flag:"symbols-prefix,S" arg:"PREFIX" help:"prefix of the names of the allocator's functions, such as je_ for je_malloc"`
	PerCPU  bool   `flag:"percpu,P" help:"trace only the kernel's per-CPU allocator"`
	Kernel  bool   `flag:"kernel" help:"trace kernel memory even with --pid: the allocations made by this process"`
	Sort    string `flag:"sort" arg:"COLUMN" help:"sort by size or count"`
	Most    uint32 `flag:"max-allocations" arg:"N" min:"1" max:"16777216" help:"maximum number of outstanding allocations"`
}

// Tool is the definition of memleak.
var Tool = tool.Define(tool.Spec{
	Name:     "memleak",
	Category: "memory",
	Summary:  "Memory leaks: outstanding allocations (not freed) by stack trace",
	Description: `Shows which stack traces allocated memory that has not been freed: the requested bytes and the number of allocations. Memory whose age or size grows with each report may be leaked. Each report contains all outstanding allocations since the start of the tool, except those younger than half a second (--older), most of which will be freed soon.

With --pid or --command, memleak traces the memory of processes: allocations by malloc(3), calloc(3), realloc(3), reallocarray(3), posix_memalign(3), aligned_alloc(3), memalign(3), valloc(3), pvalloc(3), mmap(2) and mremap(2), and frees by free(3), realloc(3) and munmap(2). C++ operator new and operator delete are traced if the allocator's file or the program defines them, as jemalloc and tcmalloc do; those of libstdc++ call malloc and free. Nested calls, such as malloc called by calloc, count as one allocation. realloc and mremap count as a free and a new allocation; if they fail, nothing changes. Failed calls allocate nothing. If the start or the end of a mapping is unmapped, the rest remains; unmapping a part in the middle is not detected. When a process executes another program, its allocations are dropped. When it exits, its remaining allocations are shown regardless of their age. --pid does not include children of the process; --command includes all descendants.

The traced functions are those of the C library, jemalloc, tcmalloc and mimalloc, if the process has mapped them, also within its container, and those of the executable, if an allocator is statically linked. --obj selects another file. If no file has the functions, as in Go programs or static programs without symbols, nothing can be observed: memleak reports this and exits with 1.

` + tool.ReturnsManual + ` All functions of glibc 2.36, musl 1.2.3, jemalloc 5.3, tcmalloc 2.10 and mimalloc 2.0 are observed without --uretprobes.

Without --pid and --command, memleak traces the memory of the kernel: allocations by kmalloc, from slab caches (kmem_cache_alloc) and of pages. Slab allocators take their memory from the page allocator: the same memory then appears in rows of both. Pages include those mapped by processes. Bulk allocations of objects and pages are not traced. Task filters apply to the allocating task; the task that frees does not matter.

Objects freed in bulk or by kfree_rcu are recorded as freed when they are passed to these functions, if the kernel supports fentry or kprobes; otherwise they are shown until their memory is allocated again. Before kernel 5.12, an object from a cache that is allocated again while it is being freed can be missed.

Counters in the summary: unseen_frees: frees of memory whose allocation was not observed or not wanted (--min-size, --max-size, --sample-rate); missed_frees: allocations at an address whose previous free was not observed; unseen_calls: returns of calls whose entry was not observed.`,
	Peers: []string{
		"-p is --pid. For a process in a container, the C library of the container is found.",
		"-c traces all processes of the command, including the shell that runs it if it contains shell syntax; the peers trace one process. The run ends with the command. The last report has all remaining allocations, regardless of their age.",
		"-t shows rows instead of reports; the peers print to trace_pipe.",
		"-a shows one row per allocation, with its stack; the peers list allocations above the stack that they share.",
		"-C and -F have no effect: all allocations are kept until they are freed, and an allocation at an address that is already allocated replaces the earlier one.",
		"-s selects allocations at random; the peers select every N-th. Values are not multiplied by N.",
		"-T also limits JSON, CSV and flame graphs; without it these have all rows.",
		"A failed realloc keeps the old allocation; the peers record it as freed. Nested calls count once.",
		"If only a part of a page allocation is freed, only that part is subtracted.",
	},
	Overhead: "An allocation and its free in a process take 16 us more: 2.4 us in the BPF programs, the rest in the traps into the kernel (20,000 of each, busy virtual machine, kernel 6.18). With --pid, other processes are not slowed down. With --command, all processes that use the same files are slowed down during the run, because the kernel cannot restrict probes to processes that do not exist yet. An allocation in the kernel takes 3 to 4 us more, and a free 0.2 to 0.7 us. The map of allocations takes 110 bytes per entry (--max-allocations).",
	Examples: []string{
		"memleak -p 1234                              # allocations of a process, every five seconds",
		"memleak -p 1234 -o 60000 60 10               # allocations older than a minute, each minute",
		"memleak -c './server --once' -T 3            # allocations that a command leaves at its exit",
		"memleak -p 1234 --duration 1m --output svg > leak.svg  # a flame graph",
		"memleak -p 1234 -O 'libjemalloc.so*' -S je_  # another allocator",
		"memleak -z 1024 --filter 'count > 100'       # kernel allocations of 1,024 bytes or more",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "interval": "i"},
}, options{
	StackOptions: source.DefaultStacks(), UserStacks: stacktrace.DefaultUserStacks(), Older: 500, Sample: 1, MaxSize: 1<<64 - 1, Sort: "size", Most: 1 << 20,
}, build)

// allocators returns the usual names of libraries that contain an allocator.
func allocators() []string {
	return append(binary.Libc(), "libjemalloc.so*", "libtcmalloc*.so*", "libmimalloc*.so*")
}

func build(o *options, env *tool.Env) (tool.Source, error) {
	plan, err := o.plan(env)
	if err != nil {
		return nil, err
	}
	if o.Trace {
		return &source.Events[event]{
			Plan: plan, Columns: []string{"time", "pid", "tid", "comm", "function", "bytes", "address"}, BufferBytes: 4 << 20,
		}, nil
	}
	return o.stacks(plan), nil
}

// Check returns an error if no size is within the limits.
func (o *options) Check() error {
	if o.MaxSize < o.MinSize {
		return fmt.Errorf("--max-size %d: it must be at least --min-size, which is %d", o.MaxSize, o.MinSize)
	}
	return nil
}

// plan selects the hooks for the memory of a process or of the kernel.
func (o *options) plan(env *tool.Env) (p tool.Plan, err error) {
	p = tool.Plan{
		Exec:       o.Command,
		Variables:  map[string]any{"page_bytes": uint64(os.Getpagesize())},
		MapEntries: map[string]uint32{"held": o.Most},
		Optional:   []string{"kmalloc_node", "cache_alloc_node", "bulk_free", "rcu_free"},
		Files:      map[string]binary.Files{"libc": {}},
	}
	if o.Command != "" {
		p.MapEntries["images"] = 1 << 16 // many processes of a command execute programs
	}
	user, slabs, percpu := []string{"user", "exec", "ended"},
		[]string{"kmalloc", "kmalloc_node", "kfree", "cache_alloc", "cache_alloc_node", "cache_free", "page_alloc", "page_free", "bulk_free", "rcu_free"},
		[]string{"percpu_alloc", "percpu_free"}
	switch {
	case o.PerCPU:
		p.Without, err = append(user, slabs...), o.checkKernel()
	case o.Kernel || o.Command == "" && len(env.PIDs) == 0:
		p.Without, err = append(user, percpu...), o.checkKernel()
	default:
		p.Without = append(slabs, percpu...)
		p.Files["libc"], err = o.files(), o.checkObject(env.PIDs)
	}
	return p, err
}

// checkKernel returns an error for options that only apply to the memory of processes.
func (o *options) checkKernel() error {
	if o.Object == "" && o.Prefix == "" {
		return nil
	}
	return errors.New("--obj and --symbols-prefix select an allocator of processes: they need --pid or --command, without --kernel and --percpu")
}

// checkObject returns an error if --obj is a path without a file. Names have no slash.
func (o *options) checkObject(pids []uint32) error {
	if !strings.Contains(o.Object, "/") {
		return nil
	}
	opened, err := (&binary.Files{PIDs: pids}).OpenPath(o.Object)
	if err != nil {
		return fmt.Errorf("--obj: %w", err)
	}
	for _, f := range opened {
		f.Close()
	}
	return nil
}

func (o *options) files() binary.Files {
	f := binary.Files{Names: allocators(), Alone: true, Prefix: o.Prefix}
	if _, err := os.Stat(o.Object); err == nil || strings.Contains(o.Object, "/") {
		f.Paths = []string{o.Object}
	} else if o.Object != "" {
		f.Names = []string{o.Object}
	} else if o.Prefix == "" {
		f.Installed = binary.InstalledMusl()
	}
	return f
}

// isYoung reports whether an allocation is too young to be shown.
func (o *options) isYoung(k *source.HeldKey, h *held, now source.Moment) bool {
	older := time.Duration(o.Older) * time.Millisecond
	return now.Since(h.Time) < older && (k.PID == 0 || !now.Ended(k.PID))
}
