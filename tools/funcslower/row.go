package funcslower

import (
	"fmt"
	"strconv"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

type event struct {
	value.Task
	Ns        uint64
	Retval    value.Address `json:"retval" col:"RVAL,width=16,right" help:"register of the return value, in hexadecimal; meaningless for a function that returns nothing"`
	Registers [6]uint64     `btf:"args"`
	Target    uint32
	KernelLen uint32
	UserLen   uint32
	_         uint32
}

type row struct {
	event
	source.Elapsed
	Latency     latency   `json:"latency_ns" col:"LAT(ms),width=9,right" help:"time from entry to return of the call, CLOCK_MONOTONIC; text shows milliseconds, with -u microseconds"`
	Func        string    `json:"func" col:"FUNC,width=20" help:"name of the function"`
	Module      string    `json:"module" col:"MODULE,width=20" help:"file of a user function, or module of a kernel function"`
	Args        arguments `json:"args" col:"ARGS,width=20" help:"registers of the first arguments at the entry, in hexadecimal, with -a"`
	KernelStack stack     `json:"kernel_stack" col:"KSTACK,extra,need=want_kernel_stack" help:"kernel stack trace at the return, innermost frame first; it can lack the function itself; in older kernels, such as 5.10, it lacks the callers of a kernel function (no_stack in the summary); text shows it below the row; with -K"`
	UserStack   stack     `json:"user_stack" col:"USTACK,extra,need=want_user_stack" help:"user stack trace at the return, innermost frame first; it can lack the function itself; text shows it below the row; with -U"`

	env            *tool.Env
	places         []target.Place
	arguments      int
	micros, folded bool
	addrs          []uint64
}

// Decode names the function and symbolizes the stacks.
func (r *row) Decode(tail []byte) error {
	if int(r.Target) >= len(r.places) || len(tail) < int(r.KernelLen)+int(r.UserLen) {
		return fmt.Errorf("event of target %d with %d bytes", r.Target, len(tail))
	}
	p := &r.places[r.Target]
	r.Func, r.Module = p.Name, p.Module
	r.Latency = latency{value.Nanoseconds(r.Ns), r.micros}
	r.Args = r.Registers[:r.arguments]
	r.KernelStack, r.UserStack = stack{r.KernelStack.Stack[:0], r.folded}, stack{r.UserStack.Stack[:0], r.folded}
	if r.KernelLen > 0 {
		r.addrs = addresses(r.addrs, tail[:r.KernelLen])
		r.KernelStack.Stack = r.env.KernelStack(r.KernelStack.Stack, r.addrs)
	}
	if r.UserLen > 0 {
		r.UserStack.Stack = r.env.UserStack(r.UserStack.Stack, tail[r.KernelLen:][:r.UserLen])
	}
	return nil
}

// latency is a duration that text shows in milliseconds or microseconds.
type latency struct {
	value.Nanoseconds
	micros bool
}

func (v *latency) AppendText(b []byte) []byte {
	if v.micros {
		return strconv.AppendFloat(b, float64(v.Nanoseconds)/1e3, 'f', 2, 64)
	}
	return v.Nanoseconds.AppendText(b)
}

// arguments are registers.
type arguments []uint64

func (v *arguments) Absent() bool { return len(*v) == 0 }

func (v *arguments) AppendText(b []byte) []byte {
	for i, arg := range *v {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendUint(append(b, "0x"...), arg, 16)
	}
	return b
}

func (v *arguments) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, arg := range *v {
		if i > 0 {
			b = append(b, ',')
		}
		address := value.Address(arg)
		b = address.AppendJSON(b)
	}
	return append(b, ']')
}

func (v *arguments) Any() any {
	out := make([]string, len(*v))
	for i, arg := range *v {
		out[i] = "0x" + strconv.FormatUint(arg, 16)
	}
	return out
}

func (v *arguments) Schema() value.Schema {
	return value.Schema{Type: "array", Items: &value.Schema{Type: "string"}}
}

// stack is a stack trace that text shows in lines, or in one line.
type stack struct {
	value.Stack
	folded bool
}

func (v *stack) AppendLines(b []byte) []byte {
	if !v.folded {
		return v.Stack.AppendLines(b)
	}
	return append(v.AppendText(append(b, "    "...)), '\n')
}
