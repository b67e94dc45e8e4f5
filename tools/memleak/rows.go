package memleak

import (
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// function mirrors enum function.
type function uint32

var functions = [...]string{
	bpfFunctionMALLOC:           "malloc",
	bpfFunctionCALLOC:           "calloc",
	bpfFunctionREALLOC:          "realloc",
	bpfFunctionREALLOCARRAY:     "reallocarray",
	bpfFunctionPOSIX_MEMALIGN:   "posix_memalign",
	bpfFunctionALIGNED_ALLOC:    "aligned_alloc",
	bpfFunctionMEMALIGN:         "memalign",
	bpfFunctionVALLOC:           "valloc",
	bpfFunctionPVALLOC:          "pvalloc",
	bpfFunctionNEW_OPERATOR:     "operator new",
	bpfFunctionMMAP:             "mmap",
	bpfFunctionMREMAP:           "mremap",
	bpfFunctionKMALLOC:          "kmalloc",
	bpfFunctionKMEM_CACHE_ALLOC: "kmem_cache_alloc",
	bpfFunctionPAGE_ALLOC:       "page_alloc",
	bpfFunctionPERCPU_ALLOC:     "percpu_alloc",
	bpfFunctionFREE:             "free",
	bpfFunctionMUNMAP:           "munmap",
	bpfFunctionKFREE:            "kfree",
	bpfFunctionKMEM_CACHE_FREE:  "kmem_cache_free",
	bpfFunctionPAGE_FREE:        "page_free",
	bpfFunctionPERCPU_FREE:      "percpu_free",
}

func (f function) name() string {
	if int(f) >= len(functions) {
		return "?"
	}
	return functions[f]
}

// AppendText appends the name of the function.
func (f *function) AppendText(b []byte) []byte { return append(b, f.name()...) }

// AppendJSON appends the name as a JSON string.
func (f *function) AppendJSON(b []byte) []byte { return value.AppendString(b, f.name()) }

// Any returns the name of the function.
func (f *function) Any() any { return f.name() }

// Schema returns the schema of a string.
func (f *function) Schema() value.Schema { return value.Schema{Type: "string"} }

// held mirrors struct held_value. Allocations are grouped by key and summed in counts.
type (
	held struct {
		Bytes    uint64
		Time     uint64 `btf:"time_ns"`
		Stack    stacktrace.StackID
		Function function
		Order    uint32
	}
	key struct {
		Stack    stacktrace.StackID
		PID      uint32
		Function function
		Address  uint64 // only with --show-allocs
		Age      uint64
	}
	counts struct{ Bytes, Count uint64 }
)

type row struct {
	Bytes       uint64        `json:"bytes" col:"BYTES,width=12,right" help:"requested bytes of these allocations; of pages, those not yet freed; of slab caches, the object size, which is that of the largest cache if the kernel has merged caches"`
	Count       uint64        `json:"count" col:"COUNT,width=10,right" help:"allocations that have not been freed"`
	Function    function      `json:"function" col:"FUNCTION,width=16" help:"allocation function, of nested calls the outermost; page_alloc is the kernel's page allocator"`
	PID         uint32        `json:"pid" col:"PID,width=7" help:"process that owns the memory, in the initial PID namespace; absent for kernel memory"`
	Address     value.Address `json:"address" col:"ADDRESS,width=16" help:"address of the allocation; for pages of their struct page; absent without --show-allocs"`
	Age         value.Elapsed `json:"age_ns" col:"AGE(s),width=10,right" help:"time since the allocation (CLOCK_BOOTTIME); absent without --show-allocs"`
	UserStack   value.Trace   `json:"user_stack" help:"user stack trace of the allocation, innermost frame first; absent for kernel memory"`
	KernelStack value.Trace   `json:"kernel_stack" help:"kernel stack trace of the allocation, innermost frame first; absent for user memory"`
}

func (o *options) stacks(plan tool.Plan) tool.Source {
	s := &source.Stacks[key, counts, row]{
		Plan: plan, StackOptions: o.StackOptions, UserStacks: o.UserStacks,
		Usual: 5 * time.Second, Count: o.Count,
		Sort: o.Sort, SortNames: map[string]string{"size": "bytes"}, Rows: o.Top, TextRows: 10,
		Unit:    source.Bytes,
		Held:    &source.Held[held, key, counts]{Count: o.count},
		Label:   label,
		Fill:    func(r *row, c *counts) { r.Bytes, r.Count = c.Bytes, c.Count },
		Weight:  func(r *row) uint64 { return r.Bytes },
		Parts:   parts,
		Heading: heading,
		Caption: o.caption,
	}
	s.RowNoun = "outstanding allocation"
	if o.Interval > 0 {
		s.Every = flags.Duration(o.Interval)
	}
	if !o.Allocs {
		s.Off = append(s.Off, "address", "age_ns")
	}
	if !plan.Files["libc"].Alone {
		s.Off = append(s.Off, "pid")
	}
	return s
}

func (o *options) count(k *source.HeldKey, h *held, now source.Moment) (key, counts, bool) {
	by := key{Stack: h.Stack, PID: k.PID, Function: h.Function}
	if o.Allocs {
		by.Address, by.Age = k.ID, uint64(now.Since(h.Time))
	}
	return by, counts{h.Bytes, 1}, !o.isYoung(k, h, now)
}

func label(k *key, t *stacktrace.Traces) row {
	r := row{Function: k.Function, PID: k.PID, Address: value.Address(k.Address), Age: value.Elapsed(k.Age)}
	if k.PID == 0 {
		r.KernelStack = t.Trace(k.Stack)
	} else {
		r.UserStack = t.Trace(k.Stack)
	}
	return r
}

// parts returns the stack and, unless it begins there, the function that allocated. A stack that is read
// at a return instruction begins in the function, one that is read by a uretprobe in its caller.
func parts(r *row) []source.Part {
	all := []source.Part{{Trace: r.UserStack}, {Trace: r.KernelStack}}
	if frames := r.UserStack.Frames(); len(frames) > 0 && frames[0].Symbol == r.Function.name() {
		return all
	}
	return append(all, source.Part{Label: r.Function.name(), Mark: true})
}

func heading(rows int) string {
	return fmt.Sprintf("[%s] Top %d stacks with outstanding allocations:", time.Now().Format(time.TimeOnly), rows)
}

func (o *options) caption(r *row) string {
	if o.Allocs {
		return fmt.Sprintf("addr = %#x size = %d", uint64(r.Address), r.Bytes)
	}
	return fmt.Sprintf("%d bytes in %d allocations from stack", r.Bytes, r.Count)
}

// event mirrors struct event.
type event struct {
	value.Task
	Address  value.Address `json:"address" col:"ADDRESS,width=16" help:"address of the allocated or freed memory; for pages of their struct page"`
	Bytes    uint64        `json:"bytes" col:"BYTES,width=12,right" help:"requested bytes; of a free, those of the allocation"`
	Function function      `json:"function" col:"FUNCTION,width=16" help:"function that allocated or freed; realloc has two rows, free and realloc"`
	_        uint32
}
