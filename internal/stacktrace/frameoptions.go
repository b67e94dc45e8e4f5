package stacktrace

import (
	"fmt"

	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/system"
)

// Frames are the options for grouping by frames, and for the depth of stacks.
type Frames struct {
	Address bool   `flag:"address" help:"tell addresses in functions apart, and show them"`
	Offset  bool   `flag:"offset" help:"as --address, but show the distances from the functions' starts"`
	Depth   uint32 `flag:"perf-max-stack-depth" arg:"N" min:"1" max:"512" bpf:"stack_depth" help:"keep only the N innermost frames; what is walked by frame pointers, as in the kernel, ends at kernel.perf_event_max_stack, 127"`
	Storage uint64 `flag:"stack-storage-size" arg:"N" help:"means nothing: there is no limit"`
}

// UserStacks are the options for user stacks.
type UserStacks struct {
	Unwind     string `flag:"unwind" arg:"HOW" of:"auto,fp" help:"how the stacks of processes are walked: auto, by what their files say of each function, and by frame pointers where they do not; fp, by frame pointers alone"`
	Memory     uint32 `flag:"unwind-memory" arg:"MB" min:"1" max:"1024" help:"memory of the kernel for unwind tables, in units of 1,048,576 bytes; by default 1/64 of the machine's, at least 64 and at most 512"`
	Lines      bool   `flag:"lines" help:"tell source lines apart, and show them as FILE:LINE, where a program has debugging information; reading that takes time, and memory as large as it is"`
	Inlines    bool   `flag:"inlines" help:"show functions that the compiler has put into others as callees of these, likewise"`
	Debuginfod string `flag:"debuginfod" arg:"URLS" help:"have the debug files of programs that have no names of their own fetched from these servers, by debuginfod-find of elfutils; names wait until they are there"`
}

// MaxDepth is STACKS_DEPTH in stacks.bpf.h.
const MaxDepth = 512

// unwindAuto is the default of --unwind.
const unwindAuto = "auto"

// DefaultUserStacks returns the default options.
func DefaultUserStacks() UserStacks { return UserStacks{Unwind: unwindAuto} }

// DefaultFrames returns the default options.
func DefaultFrames() Frames { return Frames{Depth: MaxDepth} }

// ByTables reports whether user stacks are unwound by unwind tables.
func (o *UserStacks) ByTables() bool { return o.Unwind == unwindAuto }

// tableMemory returns the memory for unwind tables in bytes.
func (o *UserStacks) tableMemory() int64 {
	if o.Memory > 0 {
		return int64(o.Memory) << 20
	}
	return tableMemory(system.Memory("/")["MemTotal"])
}

// processes returns a symbolizer for user stacks.
func (o *UserStacks) processes() (*stack.Processes, error) {
	ps := stack.NewProcesses(0)
	ps.SetDetail(stack.Detail{Lines: o.Lines, Inlines: o.Inlines})
	if o.Debuginfod == "" {
		return ps, nil
	}
	servers, err := stack.NewDebuginfod(o.Debuginfod)
	if err != nil {
		return nil, fmt.Errorf("ask --debuginfod: %w", err)
	}
	ps.SetDebuginfod(servers)
	return ps, nil
}

// exact reports whether frames are grouped by address, not by function.
func (o *Frames) exact() bool { return o.Address || o.Offset }
