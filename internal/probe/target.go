package probe

import (
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/corescope/corescope/internal/binary"
)

// Target is an attach point that the user selects. Which fields are set depends on the sections of
// the hook's programs.
type Target struct {
	// Name is the name of a kernel function, a tracepoint such as "sched/sched_switch", or the
	// name of a user function in messages.
	Name string
	// Address is the address of a kernel function, or 0 if the kernel hides it.
	Address uint64
	// File contains the user function at the file offset Offset. For a kernel function, Offset
	// is relative to its start. The file is open until all programs are attached.
	File   *binary.File
	Offset uint64
	// Semaphore is the offset in File of the counter that enables a USDT probe, or 0.
	Semaphore uint64
}

// Instance is a hook whose programs' sections name no target, with its targets. target_id()
// (target.bpf.h) returns the ID of the target that a program was called for: First for the first
// target, First + 1 for the next one, and so on.
type Instance struct {
	Hook    string
	First   uint64
	Targets []Target
	// Functions are bodies for functions of the programs, by name.
	Functions map[string]asm.Instructions
	// Sleepable are bodies for programs of user functions that are loaded as sleepable, if the
	// kernel supports that (Linux 6.0). It may be nil.
	Sleepable map[string]asm.Instructions
	// AllowPartial means that attaching succeeds if at least one target is attached.
	AllowPartial bool

	noCookies bool // the kernel has no attach cookies for these programs
}

// FailedTarget is a target that failed to attach.
type FailedTarget struct {
	Target string
	Err    error
}

// namesNoTarget reports whether the program's section has no attach point.
func namesNoTarget(spec *ebpf.ProgramSpec) bool {
	switch spec.Type {
	case ebpf.RawTracepoint, ebpf.Tracing, ebpf.TracePoint, ebpf.Kprobe:
		return !strings.Contains(spec.SectionName, "/")
	}
	return false
}

// isMulti reports whether one link attaches the program to many targets.
func isMulti(spec *ebpf.ProgramSpec) bool {
	return spec.AttachType == ebpf.AttachTraceKprobeMulti || spec.AttachType == ebpf.AttachTraceUprobeMulti
}

// isReturn reports whether the program runs when a function returns.
func isReturn(spec *ebpf.ProgramSpec) bool {
	kind, _, _ := strings.Cut(spec.SectionName, "/")
	return kind == "fexit" || strings.Contains(kind, "retprobe")
}

// isUser reports whether the program is attached to user functions.
func isUser(spec *ebpf.ProgramSpec) bool {
	return strings.HasPrefix(spec.SectionName, "u")
}

// canShare reports whether the program can be attached to several targets and identify them by
// attach cookies.
func canShare(spec *ebpf.ProgramSpec) bool {
	return spec.Type == ebpf.Kprobe || spec.Type == ebpf.TracePoint
}
