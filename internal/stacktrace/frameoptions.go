package stacktrace

import (
	"fmt"

	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/system"
)

// Frames are the options for grouping by frames, and for the depth of stacks.
type Frames struct {
	Address bool   `flag:"address" help:"group by address instead of function, and show addresses"`
	Offset  bool   `flag:"offset" help:"like --address, but show offsets from the start of functions"`
	Depth   uint32 `flag:"perf-max-stack-depth" arg:"N" min:"1" max:"512" bpf:"stack_depth" help:"keep only the N innermost frames; kernel stacks, and user stacks with --unwind fp, have at most kernel.perf_event_max_stack frames (by default 127)"`
	Storage uint64 `flag:"stack-storage-size" arg:"N" help:"ignored, for compatibility: the number of stacks is not limited"`
}

// UserStacks are the options for user stacks.
type UserStacks struct {
	Unwind     string `flag:"unwind" arg:"HOW" of:"auto,fp" help:"how user stacks are unwound: auto uses unwind tables, and frame pointers in code that has no tables; fp uses only frame pointers"`
	Memory     uint32 `flag:"unwind-memory" arg:"MB" min:"1" max:"1024" help:"kernel memory for unwind tables, in units of 1,048,576 bytes; by default 1/64 of the memory of the machine, at least 64 and at most 512"`
	Lines      bool   `flag:"lines" help:"group by source line instead of function, and show FILE:LINE, if a program has debugging information; reading it takes time, and as much memory as its size"`
	Inlines    bool   `flag:"inlines" help:"show inlined functions as callees of the functions that contain them, if a program has debugging information; reading it takes time, and as much memory as its size"`
	Debuginfod string `flag:"debuginfod" arg:"URLS" help:"download the debug files of programs without symbols from these servers, with debuginfod-find of elfutils; symbolization waits for the downloads"`
}

// MaxDepth is the largest number of frames: STACKS_DEPTH in stackwalk.bpf.h, with which it is compared.
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
		return nil, fmt.Errorf("set up --debuginfod: %w", err)
	}
	ps.SetDebuginfod(servers)
	return ps, nil
}

// exact reports whether frames are grouped by address, not by function.
func (o *Frames) exact() bool { return o.Address || o.Offset }
