package memleak

import (
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// function is enum function.
type function uint32

var functions = [...]string{
	"malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "memalign", "valloc", "pvalloc", "mmap", "mremap",
	"kmalloc", "kmem_cache_alloc", "page_alloc", "percpu_alloc",
	"free", "munmap", "kfree", "kmem_cache_free", "page_free", "percpu_free",
}

func (f function) name() string {
	if int(f) >= len(functions) {
		return "?"
	}
	return functions[f]
}

// AppendText appends the name.
func (f *function) AppendText(b []byte) []byte { return append(b, f.name()...) }

// AppendJSON appends it quoted.
func (f *function) AppendJSON(b []byte) []byte { return value.AppendString(b, f.name()) }

// Any returns the name.
func (f *function) Any() any { return f.name() }

// Schema lists the names.
func (f *function) Schema() value.Schema { return value.Schema{Type: "string"} }

// held is struct held_value, key and counts what the allocations are counted by, and how.
type (
	held struct {
		Bytes    uint64
		Time     uint64 `btf:"time_ns"`
		Stack    tool.StackID
		Function function
		Order    uint32
	}
	key struct {
		Stack    tool.StackID
		PID      uint32
		Function function
		Address  uint64 // of one allocation, if it is shown by itself
		Age      uint64
	}
	counts struct{ Bytes, Count uint64 }
)

type row struct {
	Bytes       uint64        `json:"bytes" col:"BYTES,width=12,right" help:"bytes that were asked for, of all these allocations; of pages, what is not freed of them; of a cache, the size of its objects, which is that of the largest where the kernel has merged caches"`
	Count       uint64        `json:"count" col:"COUNT,width=10,right" help:"allocations that have not been freed"`
	Function    function      `json:"function" col:"FUNCTION,width=16" help:"what they were allocated by: of several functions in one another the outermost; page_alloc stands for the kernel's allocator of pages"`
	PID         uint32        `json:"pid" col:"PID,width=7" help:"process whose memory it is, in the initial PID namespace; absent for the kernel's"`
	Address     value.Address `json:"address" col:"ADDRESS,width=16" help:"of the allocation; of pages, of their struct page; absent without --show-allocs"`
	Age         value.Elapsed `json:"age_ns" col:"AGE(s),width=10,right" help:"time since it was allocated (CLOCK_BOOTTIME); absent without --show-allocs"`
	UserStack   value.Trace   `json:"user_stack" help:"the process's functions that called the allocator, the innermost first; absent for the kernel's memory"`
	KernelStack value.Trace   `json:"kernel_stack" help:"the kernel's functions that allocated, the innermost first; absent for a process's memory"`
}

func (o *options) stacks(plan tool.Plan) tool.Source {
	s := &tool.Stacks[key, counts, row]{
		Plan: plan, StackOptions: o.StackOptions, UserStacks: o.UserStacks,
		Usual: 5 * time.Second, Count: o.Count,
		Sort: o.Sort, SortNames: map[string]string{"size": "bytes"}, Rows: o.Top, TextRows: 10,
		Unit:    tool.Bytes,
		Held:    &tool.Held[held, key, counts]{Count: o.count},
		Label:   label,
		Fill:    func(r *row, c *counts) { r.Bytes, r.Count = c.Bytes, c.Count },
		Weight:  func(r *row) uint64 { return r.Bytes },
		Parts:   parts,
		Heading: heading,
		Caption: o.caption,
	}
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

func (o *options) count(k *tool.HeldKey, h *held, now tool.Moment) (key, counts, bool) {
	by := key{Stack: h.Stack, PID: k.PID, Function: h.Function}
	if o.Allocs {
		by.Address, by.Age = k.ID, uint64(now.Since(h.Time))
	}
	return by, counts{h.Bytes, 1}, !o.isYoung(k, h, now)
}

func label(k *key, t *tool.Traces) row {
	r := row{Function: k.Function, PID: k.PID, Address: value.Address(k.Address), Age: value.Elapsed(k.Age)}
	if k.PID == 0 {
		r.KernelStack = t.Of(k.Stack)
	} else {
		r.UserStack = t.Of(k.Stack)
	}
	return r
}

func parts(r *row) []tool.Part {
	return []tool.Part{{Trace: r.UserStack}, {Trace: r.KernelStack}, {Label: r.Function.name(), Mark: true}}
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

// event is struct event.
type event struct {
	value.Task
	Address  value.Address `json:"address" col:"ADDRESS,width=16" help:"of what is allocated or freed; of pages, of their struct page"`
	Bytes    uint64        `json:"bytes" col:"BYTES,width=12,right" help:"bytes that were asked for, and of a free, those of the allocation"`
	Function function      `json:"function" col:"FUNCTION,width=16" help:"what it was allocated or freed by; realloc is free and realloc"`
	_        uint32
}
