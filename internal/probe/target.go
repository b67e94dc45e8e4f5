package probe

import (
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/corescope/corescope/internal/binary"
)

// Target is a place of the user's choice that programs are attached to. Which of the
// fields are set follows from the sections of its hook's programs.
type Target struct {
	// Name is a kernel function, a tracepoint as "sched/sched_switch", or what a user
	// function is called.
	Name string
	// Address is that of a kernel function, or 0 where the kernel hides it.
	Address uint64
	// File has a user function at Offset, in bytes from its beginning. That of a kernel
	// function is from the function's. It is open until all is attached.
	File   *binary.File
	Offset uint64
	// Semaphore is the offset in File of the counter that a USDT probe wants raised, or 0.
	Semaphore uint64
}

// Instance is a hook whose programs' sections name no target, and its targets. The
// programs learn from target_id() (target.bpf.h) which target they were called for: the
// first one's number is First, and so on.
type Instance struct {
	Hook    string
	First   uint64
	Targets []Target
	// Functions are bodies for functions of the programs, by their names.
	Functions map[string]asm.Instructions
	// Sleepable are bodies to use instead in programs of user functions, which are then loaded
	// as sleepable, if the kernel supports that (6.0). It may be nil.
	Sleepable map[string]asm.Instructions
	// Some tells that it is enough when some of the targets can be had.
	Some bool

	alone bool // the kernel cannot tell a program which target it was called for
}

// Refusal is a target that could not be had.
type Refusal struct {
	Target string
	Err    error
}

// isOpen tells programs whose section does not say where to attach.
func isOpen(spec *ebpf.ProgramSpec) bool {
	switch spec.Type {
	case ebpf.RawTracepoint, ebpf.Tracing, ebpf.TracePoint, ebpf.Kprobe:
		return !strings.Contains(spec.SectionName, "/")
	}
	return false
}

// isMulti tells programs that one link attaches to many targets.
func isMulti(spec *ebpf.ProgramSpec) bool {
	return spec.AttachType == ebpf.AttachTraceKprobeMulti || spec.AttachType == ebpf.AttachTraceUprobeMulti
}

// isReturn tells programs that run when a function returns.
func isReturn(spec *ebpf.ProgramSpec) bool {
	kind, _, _ := strings.Cut(spec.SectionName, "/")
	return kind == "fexit" || strings.Contains(kind, "retprobe")
}

// isUser tells programs of user functions.
func isUser(spec *ebpf.ProgramSpec) bool {
	return strings.HasPrefix(spec.SectionName, "u")
}

// canShare tells programs that can be attached to several targets, and be told which.
func canShare(spec *ebpf.ProgramSpec) bool {
	return spec.Type == ebpf.Kprobe || spec.Type == ebpf.TracePoint
}
