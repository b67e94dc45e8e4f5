// Package capable traces capability checks.
package capable

import (
	"encoding/binary"
	"fmt"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh capable.bpf.c

type options struct {
	KernelStack bool   `flag:"kernel-stack,K" help:"show the kernel stack trace of each check"`
	UserStack   bool   `flag:"user-stack,U" help:"show the user stack trace of each check"`
	Extra       bool   `flag:"extra-fields,x" also:"extra" help:"show TID and INSETID"`
	Unique      string `flag:"unique,u" arg:"off|pid|cgroup" of:"off,pid,cgroup" bare:"pid" help:"show checks that differ in the capability, the verdict or the user namespace once per process or cgroup; with --filter, once of those that match"`
	Denied      bool   `flag:"denied" bpf:"targ_denied" help:"only checks that failed"`
	Depth       uint32 `flag:"perf-max-stack-depth" arg:"N" min:"1" max:"512" bpf:"stack_depth" help:"keep only the N innermost frames of a stack; kernel stacks have at most 127"`
	Storage     uint64 `flag:"stack-storage-size" arg:"N" help:"ignored, for compatibility: stacks are sent with the rows"`
	Dwarf       bool   `flag:"dwarf" sets:"unwind=auto" help:"same as --unwind auto, for compatibility with BCC"`
	stacktrace.UserStacks
}

type event struct {
	value.Task
	Start     uint64 `btf:"start_ns"`
	Cap       int32  `json:"cap" col:"CAP,width=3,right" help:"number of the capability"`
	Ret       int32  `json:"ret" col:"RET,width=3,right" help:"result of the check: 0, or -1 (EPERM) if the task lacks the capability"`
	UserNS    uint32 `json:"userns" col:"USERNS,width=10" help:"user namespace in which the capability is needed: inode number of /proc/PID/ns/user"`
	KernelLen uint32
	UserLen   uint32
	AuditOpt  bool `btf:"audit"`
	SetIDOpt  bool `btf:"insetid"`
	HasOpts   bool
	_         uint8
}

type row struct {
	event
	Name    string     `json:"capability" col:"NAME,width=20" help:"name of the capability, as in capabilities(7)"`
	Verdict string     `json:"verdict" col:"VERDICT,width=7" help:"allow or deny"`
	Audit   value.Flag `json:"audit" col:"AUDIT,width=5,right" help:"whether a failed check would be reported to the audit system; not so if the kernel only wants to know; absent if checks are traced at the tracepoint, which does not have it"`
	InSetID value.Flag `json:"insetid" col:"INSETID,width=7,right" help:"whether the check is part of a call that sets user or group IDs; absent like audit"`

	KernelStack value.Stack `json:"kernel_stack" col:"KSTACK,extra,need=want_kernel_stack" help:"kernel stack trace, innermost frame first; text shows it below the row; symbolized with -K"`
	UserStack   value.Stack `json:"user_stack" col:"USTACK,extra,need=want_user_stack" help:"user stack trace, innermost frame first; text shows it below the row; in the first stacks of a process not selected by --pid, functions without frame pointers are missing; symbolized with -U"`

	env   *tool.Env
	addrs []uint64
	depth uint32
}

// Decode names the capability, and symbolizes the stacks, which follow the event.
func (r *row) Decode(tail []byte) error {
	if len(tail) < int(r.KernelLen)+int(r.UserLen) {
		return fmt.Errorf("tail has %d bytes, want %d and %d of stacks", len(tail), r.KernelLen, r.UserLen)
	}
	r.Name = system.Capability(r.Cap).String()
	r.Verdict = "allow"
	if r.Ret != 0 {
		r.Verdict = "deny"
	}
	r.Audit = value.Flag{Set: r.AuditOpt, Given: r.HasOpts}
	r.InSetID = value.Flag{Set: r.SetIDOpt, Given: r.HasOpts}
	r.KernelStack, r.UserStack = r.KernelStack[:0], r.UserStack[:0]
	if r.KernelLen > 0 {
		r.addrs = r.addrs[:0]
		for b := tail[:r.KernelLen]; len(b) >= 8; b = b[8:] {
			r.addrs = append(r.addrs, binary.NativeEndian.Uint64(b))
		}
		r.KernelStack = r.env.KernelStack(r.KernelStack, r.addrs)
		r.KernelStack = r.KernelStack[:min(len(r.KernelStack), int(r.depth))]
	}
	if r.UserLen > 0 {
		r.UserStack = r.env.UserStack(r.UserStack, tail[r.KernelLen:][:r.UserLen])
	}
	return nil
}

// Tool is the definition of capable.
var Tool = tool.Define(tool.Spec{
	Name:     "capable",
	Category: "security",
	Summary:  "Trace capability checks (CAP_SYS_ADMIN, CAP_NET_ADMIN, …): which privileges a program uses or lacks",
	Description: `Shows each check of a capability by the kernel: which task needs which capability, and whether it has it. This tells which capabilities a service needs, and which one it lacks if it fails with EPERM.

A failed check is not always an error: the kernel makes some checks only to decide how much a task may see or use. These have AUDIT 0. A check by a task in a container concerns the user namespace USERNS: CAP_SYS_ADMIN in the namespace of a container is less than CAP_SYS_ADMIN in the initial one.

The hook is the function cap_capable, if the kernel supports fentry, otherwise the tracepoint capability:cap_capable (Linux 6.14 and later), which has neither AUDIT nor INSETID, otherwise a kprobe (--explain). With a kprobe on old kernels (such as 5.10, not 6.1), the kernel stack is only the frame kretprobe_trampoline. Checks for which the kernel does not call cap_capable, because another security module has denied them before, are not shown.`,
	Peers: []string{
		"All checks are shown, as in libbpf-tools; in BCC only with -v. --filter audit shows those with AUDIT 1.",
		"-u takes pid or cgroup, as in libbpf-tools. Without an argument, at the end or before another flag, as in BCC, it is --unique pid.",
		"The tracepoint is used where neither fentry nor kprobes are available; the peers do not run there.",
	},
	Overhead: "A check took 1.6 us, including sending the event (4,000 checks on a busy machine, without stacks, --stats).",
	Examples: []string{
		"capable                                  # all checks",
		"capable --denied -K                      # failed checks, with the kernel stack",
		"capable -u pid --comm nginx              # capabilities that a program needs, once per process",
		"capable --filter 'cap == 21'                # checks of CAP_SYS_ADMIN",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "cgroup": "c"},
}, options{Unique: "off", Depth: stacktrace.MaxDepth, UserStacks: stacktrace.DefaultUserStacks()}, build)

// key is what makes a check unique, as struct seen of capable.bpf.c.
type key struct {
	by, start uint64
	cap, ret  int32
	userns    uint32
}

// once returns the key of a row for -u with --filter: programs do not know the filter, so a check that
// it excludes would hide the following ones.
func (o *options) once(env *tool.Env) func(*row) any {
	if o.Unique == "off" || !env.HasFilter {
		return nil
	}
	return func(r *row) any {
		k := key{uint64(r.PID), r.Start, r.Cap, r.Ret, r.UserNS}
		if o.Unique == "cgroup" {
			k.by, k.start = r.CgroupID, 0
		}
		return k
	}
}

func build(o *options, env *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Plan: tool.Plan{
			Variables: map[string]any{
				"targ_by_process": o.Unique == "pid" && !env.HasFilter, "targ_by_cgroup": o.Unique == "cgroup" && !env.HasFilter,
			},
			RowNoun: "check",
		},
		Columns:     []string{"time", "uid", "pid"},
		BufferBytes: 8 << 20,
		Row:         row{env: env, depth: o.Depth},
		Once:        o.once(env),
	}
	if o.Extra {
		e.Columns = append(e.Columns, "tid")
	}
	e.Columns = append(e.Columns, "comm", "cap", "capability", "audit", "verdict")
	if o.Extra {
		e.Columns = append(e.Columns, "insetid")
	}
	if o.KernelStack {
		e.Extra, e.Plan.Keep = append(e.Extra, "kernel_stack"), append(e.Plan.Keep, system.CapSyslog)
	}
	if o.UserStack {
		e.Extra, e.Plan.Keep = append(e.Extra, "user_stack"), append(e.Plan.Keep, tool.UserStackNeeds()...)
		e.UserStacks = &o.UserStacks
	}
	e.Columns = append(e.Columns, e.Extra...)
	return e, nil
}
