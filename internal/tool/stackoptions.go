package tool

import (
	"fmt"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/value"
)

// StackOptions are those of every tool that counts by stacks.
type StackOptions struct {
	Folded      bool           `flag:"folded,f" help:"a line for each stack, as flame graph programs read it: --output folded"`
	Every       flags.Duration `flag:"interval" arg:"TIME" help:"time between reports, in seconds or as 500ms; one report at the end without it"`
	Annotations bool           `flag:"annotations" help:"mark the kernel's functions in folded stacks by _[k], and inlined ones by _[i]"`
	Frames
}

// Frames are the options of how stacks are taken and told apart.
type Frames struct {
	Address bool   `flag:"address" help:"tell addresses in functions apart, and show them"`
	Offset  bool   `flag:"offset" help:"as --address, but show the distances from the functions' starts"`
	Depth   uint32 `flag:"perf-max-stack-depth" arg:"N" bpf:"stack_depth" help:"keep only the N innermost frames, 512 at the most; what is walked by frame pointers, as in the kernel, ends at kernel.perf_event_max_stack, 127"`
	Storage uint64 `flag:"stack-storage-size" arg:"N" help:"means nothing: there is no limit"`
}

// UserStacks are the options of tools that count by stacks of processes.
type UserStacks struct {
	Unwind     string `flag:"unwind" arg:"HOW" help:"how the stacks of processes are walked: auto, by what their files say of each function, and by frame pointers where they do not; fp, by frame pointers alone"`
	Lines      bool   `flag:"lines" help:"tell source lines apart, and show them as FILE:LINE, where a program has debugging information; reading that takes time, and memory as large as it is"`
	Inlines    bool   `flag:"inlines" help:"show functions that the compiler has put into others as callees of these, likewise"`
	Debuginfod string `flag:"debuginfod" arg:"URLS" help:"have the debug files of programs that have no names of their own fetched from these servers, by debuginfod-find of elfutils; names wait until they are there"`
}

// Stop is the argument of tools that take a duration where others take an interval.
type Stop struct {
	Duration flags.Duration `pos:"duration" help:"stop after this time, in seconds or as 500ms"`
}

// Sides are the options of tools that count by stacks of the kernel and of the process.
type Sides struct {
	UserStacks
	UserOnly   bool `flag:"user-stacks-only,U" bpf:"user_stacks_only" help:"only the stacks of user space"`
	KernelOnly bool `flag:"kernel-stacks-only,K" bpf:"kernel_stacks_only" help:"only the stacks of the kernel"`
	Delimited  bool `flag:"delimited,d" help:"put a line between a stack of the kernel's and one of user space"`
}

// stackDepth is STACKS_DEPTH of stacks.bpf.h.
const stackDepth = 512

// What --unwind can be.
const (
	unwindAuto = "auto"
	unwindFP   = "fp"
)

// DefaultStacks are the options before any is given.
func DefaultStacks() StackOptions { return StackOptions{Frames: DefaultFrames()} }

// DefaultUserStacks are the options before any is given.
func DefaultUserStacks() UserStacks { return UserStacks{Unwind: unwindAuto} }

// DefaultSides are the options before any is given.
func DefaultSides() Sides { return Sides{UserStacks: DefaultUserStacks()} }

// DefaultFrames are the options before any is given.
func DefaultFrames() Frames { return Frames{Depth: stackDepth} }

func (o *UserStacks) check() error {
	switch o.Unwind {
	case "", unwindAuto, unwindFP:
		return nil
	}
	return fmt.Errorf("--unwind is %s or %s", unwindAuto, unwindFP)
}

// byTables tells that the stacks of processes are walked by tables.
func (o *UserStacks) byTables() bool { return o.Unwind == unwindAuto }

// processes name what lies in processes.
func (o *UserStacks) processes() (*stack.Processes, error) {
	ps := stack.NewProcesses(0)
	ps.Want(stack.Detail{Lines: o.Lines, Inlines: o.Inlines})
	if o.Debuginfod == "" {
		return ps, nil
	}
	servers, err := stack.NewDebuginfod(o.Debuginfod)
	if err != nil {
		return nil, fmt.Errorf("ask --debuginfod: %w", err)
	}
	ps.Ask(servers)
	return ps, nil
}

func (o *Frames) check() error {
	if o.Depth == 0 || o.Depth > stackDepth {
		return fmt.Errorf("--perf-max-stack-depth is from 1 to %d", stackDepth)
	}
	return nil
}

// exact tells that frames of one function at two addresses are two.
func (o *Frames) exact() bool { return o.Address || o.Offset }

// Forms of --output of tools that count by stacks.
const (
	folded     output.Format = "folded"
	pprof      output.Format = "pprof"
	speedscope output.Format = "speedscope"
	svg        output.Format = "svg"
	page       output.Format = "html"
)

// formats are these in the order of the help. Most are one document, which has no intervals.
func (o *StackOptions) formats() []output.Format {
	if o.Every > 0 {
		return []output.Format{folded}
	}
	return []output.Format{folded, pprof, speedscope, svg, page}
}

// writers write them.
func (o *StackOptions) writers() map[output.Format]flame.Writer {
	return map[output.Format]flame.Writer{
		folded: flame.Options{Marks: o.Annotations}.Folded,
		pprof:  flame.Pprof, speedscope: flame.Speedscope, svg: flame.SVG, page: flame.HTML,
	}
}

// formats lists what --output can be for the source.
func formats(src Source) []output.Format {
	all := []output.Format{output.Text, output.JSON, output.CSV}
	if f, ok := src.(interface{ formats() []output.Format }); ok {
		all = append(all, f.formats()...)
	}
	return all
}

// Units of weights.
const (
	Samples     = flame.Samples
	Calls       = flame.Calls
	Bytes       = flame.Bytes
	Nanoseconds = flame.Nanoseconds
)

// TaskParts are what a task's row shows: its name, its own stack and the kernel's.
func TaskParts(comm string, pid uint32, user, kernel value.Trace, delimited bool) []Part {
	parts := []Part{{Label: comm, Title: "-", More: fmt.Sprintf(" (%d)", pid)}, {Trace: user}}
	if delimited && !user.Absent() && !kernel.Absent() {
		parts = append(parts, Part{Label: "--", Mark: true})
	}
	return append(parts, Part{Trace: kernel})
}

// Waits are the options of tools that measure waits (offcpu.bpf.h).
type Waits struct {
	UserThreads   bool   `flag:"user-threads-only,u" bpf:"user_threads_only" help:"no threads of the kernel"`
	KernelThreads bool   `flag:"kernel-threads-only,k" bpf:"kernel_threads_only" help:"only threads of the kernel"`
	Min           uint64 `flag:"min-block-time,m" arg:"US" help:"only waits of that many microseconds and more"`
	Max           uint64 `flag:"max-block-time,M" arg:"US" help:"only waits of that many microseconds and less; 0 is any"`
}

// DefaultWaits are the options before any is given.
func DefaultWaits() Waits { return Waits{Min: 1} }

// Variables are those of the programs.
func (w *Waits) Variables() map[string]any {
	vars := map[string]any{"min_block_ns": w.Min * 1000}
	if w.Max > 0 {
		vars["max_block_ns"] = w.Max * 1000
	}
	return vars
}
