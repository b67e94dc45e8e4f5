package source

import (
	"errors"
	"fmt"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/value"
)

// StackOptions are the options of all tools that count by stacks.
type StackOptions struct {
	Folded      bool           `flag:"folded,f" sets:"output=folded" help:"one line per stack, the input format of flame graph programs; same as --output folded"`
	Every       flags.Duration `flag:"interval" arg:"TIME" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default"`
	Annotations bool           `flag:"annotations" help:"in folded stacks, append _[k] to kernel functions and _[i] to inlined functions"`
	stacktrace.Frames
}

// Stop is the argument of tools that take a duration where others take an interval.
type Stop struct {
	Duration flags.Duration `pos:"duration" sets:"duration" help:"stop after this time, in seconds or with a unit as 500ms"`
}

// Sides are the options of tools that count by kernel and user stacks.
type Sides struct {
	stacktrace.UserStacks
	UserOnly   bool `flag:"user-stacks-only,U" bpf:"user_stacks_only" help:"only user stacks"`
	KernelOnly bool `flag:"kernel-stacks-only,K" bpf:"kernel_stacks_only" help:"only kernel stacks"`
	Delimited  bool `flag:"delimited,d" help:"put a line between the kernel stack and the user stack"`
}

// Check returns an error for options that exclude all stacks.
func (s *Sides) Check() error {
	if s.UserOnly && s.KernelOnly {
		return errors.New("--user-stacks-only and --kernel-stacks-only cannot be combined")
	}
	return nil
}

// DefaultStacks returns the default options.
func DefaultStacks() StackOptions { return StackOptions{Frames: stacktrace.DefaultFrames()} }

// DefaultSides returns the default options.
func DefaultSides() Sides { return Sides{UserStacks: stacktrace.DefaultUserStacks()} }

// Values of --output of tools that count by stacks.
const (
	folded     output.Format = "folded"
	pprof      output.Format = "pprof"
	speedscope output.Format = "speedscope"
	svg        output.Format = "svg"
	page       output.Format = "html"
)

// Formats lists these in the order of the help. Most are a single document, without intervals.
func (o *StackOptions) Formats() []output.Format {
	if o.Every > 0 {
		return []output.Format{folded}
	}
	return []output.Format{folded, pprof, speedscope, svg, page}
}

// writers returns the writers of these formats.
func (o *StackOptions) writers() map[output.Format]flame.Writer {
	return map[output.Format]flame.Writer{
		folded: flame.Options{Marks: o.Annotations}.Folded,
		pprof:  flame.Pprof, speedscope: flame.Speedscope, svg: flame.SVG, page: flame.HTML,
	}
}

// Units of weights.
const (
	Samples     = flame.Samples
	Calls       = flame.Calls
	Bytes       = flame.Bytes
	Nanoseconds = flame.Nanoseconds
)

// TaskParts returns the parts of a row of a task: its name, its user stack and its kernel stack.
func TaskParts(comm string, pid uint32, user, kernel value.Trace, delimited bool) []Part {
	parts := []Part{{Label: comm, Title: "-", More: fmt.Sprintf(" (%d)", pid)}, {Trace: user}}
	if delimited && !user.Absent() && !kernel.Absent() {
		parts = append(parts, Part{Label: "--", Mark: true})
	}
	return append(parts, Part{Trace: kernel})
}

// Waits are the options of tools that measure off-CPU time (offcpu.bpf.h).
type Waits struct {
	UserThreads   bool   `flag:"user-threads-only,u" also:"useronly" bpf:"user_threads_only" help:"only user threads, no kernel threads"`
	KernelThreads bool   `flag:"kernel-threads-only,k" bpf:"kernel_threads_only" help:"only kernel threads"`
	Min           uint64 `flag:"min-block-time,m" arg:"US" max:"18446744073709551" help:"only waits of at least this number of microseconds"`
	Max           uint64 `flag:"max-block-time,M" arg:"US" max:"18446744073709551" help:"only waits of at most this number of microseconds; 0 means no limit"`
}

// Check returns an error for options that exclude everything.
func (w *Waits) Check() error {
	if w.UserThreads && w.KernelThreads {
		return errors.New("--user-threads-only and --kernel-threads-only cannot be combined")
	}
	if w.Max > 0 && w.Max < w.Min {
		return fmt.Errorf("--max-block-time %d: it must be at least --min-block-time, which is %d", w.Max, w.Min)
	}
	return nil
}

// DefaultWaits returns the default options.
func DefaultWaits() Waits { return Waits{Min: 1} }

// Variables returns the variables of offcpu.bpf.h.
func (w *Waits) Variables() map[string]any {
	vars := map[string]any{"min_block_ns": w.Min * 1000}
	if w.Max > 0 {
		vars["max_block_ns"] = w.Max * 1000
	}
	return vars
}
