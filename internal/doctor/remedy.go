package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// confidentiality is the mode of lockdown in which nobody may read the kernel's memory.
const confidentiality = "confidentiality"

// Sentences that follow from one fact alone.
const (
	lockedDown = "kernel lockdown is in mode confidentiality, which lets no BPF program read the kernel's memory: " +
		"boot with lockdown=integrity, or without it"
	otherProc = "/proc belongs to another PID namespace than corescope: " +
		"--pid and --tid are refused, and user stacks are not symbolized: " +
		"mount the /proc of this namespace with 'mount -t proc proc /proc', or run corescope in the PID namespace of /proc"
	inUserNamespace = "in a user namespace no capability is worth anything to BPF: run it outside of it, not in a rootless container"
)

// Needs are the capabilities that every tool needs.
const Needs = system.Capabilities(1<<system.CapBPF | 1<<system.CapPerfmon)

// Remedy says what the user can do about an error with which a tool did not start, as a
// part of a sentence, or "" if nothing is known. needs are the capabilities of that run.
func Remedy(err error, f *Facts, needs system.Capabilities) string {
	var hook *probe.HookError
	isHook := errors.As(err, &hook)
	denied := errors.Is(err, probe.ErrNotPermitted)
	switch {
	case errors.Is(err, unix.ENOMEM):
		return "raise the limit of this process's memory cgroup (memory.max), or free memory"
	case errors.Is(err, unix.EMFILE):
		return f.openFiles()
	case errors.Is(err, unix.ENFILE):
		return "the whole system is at its limit: raise fs.file-max"
	case errors.Is(err, unix.ENOSYS):
		return "the kernel is built without the system call: it needs CONFIG_BPF_SYSCALL and CONFIG_PERF_EVENTS"
	case errors.Is(err, probe.ErrNoBTF):
		return f.noBTF()
	case f.Lockdown == confidentiality && (denied || isHook):
		return lockedDown
	case denied:
		return f.notPermitted(needs)
	case isHook:
		return f.noWay(hook)
	}
	return ""
}

func (f *Facts) openFiles() string {
	limit := ""
	if f.OpenFiles != nil {
		limit = fmt.Sprintf(", which is %d", *f.OpenFiles)
	}
	return "raise the limit of open files of this process" + limit + ": ulimit -n"
}

func (f *Facts) noBTF() string {
	return fmt.Sprintf("give it the BTF of kernel %s with --btf FILE or CORESCOPE_BTF=FILE: BTFHub's archive has that of many "+
		"distributions' kernels, pahole --btf_encode_detached=FILE makes it of a vmlinux with debug symbols; "+
		"kernels with CONFIG_DEBUG_INFO_BTF have their own", f.Kernel)
}

// missing is what is needed and not held. Who has CAP_SYS_ADMIN has the two that were
// taken from it in 5.8.
func (f *Facts) missing(needs system.Capabilities) system.Capabilities {
	held := f.held
	if held.Has(system.CapSysAdmin) {
		held |= system.Set(system.CapBPF, system.CapPerfmon)
	}
	return needs &^ held
}

// notPermitted looks for the reason in the order in which the kernel asks: capabilities,
// what they are worth, limits, and what may refuse beside that.
func (f *Facts) notPermitted(needs system.Capabilities) string {
	missing := f.missing(needs)
	switch {
	case missing != 0:
		return fmt.Sprintf("lacks %s: run it as root, or give it %s", missing, needs)
	case f.UserNamespace:
		return inUserNamespace
	case f.memlockClosed():
		return f.memlock()
	case f.perfClosed():
		return f.paranoid()
	case f.Seccomp == "filter":
		return "its system calls are filtered (seccomp), as in most containers: the filter must let bpf and perf_event_open through " +
			"(docker run --security-opt seccomp=unconfined)"
	}
	return "it has the capabilities, so something else refuses: see what the security module (AppArmor, SELinux) says in the kernel's log"
}

// memlockClosed tells whether maps may hit a limit of locked memory that this process
// cannot raise.
func (f *Facts) memlockClosed() bool {
	return f.MemlockBytes != nil && f.MemlockCounts != nil && *f.MemlockCounts && !f.held.Has(system.CapSysResource)
}

func (f *Facts) memlock() string {
	return fmt.Sprintf("BPF maps count as locked memory on this kernel, of which %d KiB are allowed: "+
		"run it with ulimit -l unlimited, or give it CAP_SYS_RESOURCE", *f.MemlockBytes>>10)
}

// perfClosed tells of a setting that Debian's and Ubuntu's kernels have: above 2, perf
// events are for CAP_SYS_ADMIN, with CAP_PERFMON or without.
func (f *Facts) perfClosed() bool {
	return f.PerfEventParanoid != nil && *f.PerfEventParanoid > 2 && !f.held.Has(system.CapSysAdmin)
}

func (f *Facts) paranoid() string {
	return fmt.Sprintf("kernel.perf_event_paranoid is %d, which closes perf events to all but CAP_SYS_ADMIN: "+
		"set it to 2, or give it that", *f.PerfEventParanoid)
}

func (f *Facts) isUnknown(key string) bool { return slices.Contains(f.Unknown, key) }

// noWay says what would make a way to a hook.
func (f *Facts) noWay(e *probe.HookError) string {
	if closed := f.tracefsClosed(e); closed != "" {
		return closed
	}
	var ways []string
	for _, a := range e.Tried {
		if needs := a.Variant.Needs(); needs != "" && !slices.Contains(ways, needs) {
			ways = append(ways, needs)
		}
	}
	if len(ways) == 0 {
		return ""
	}
	return "the hook needs " + strings.Join(ways, ", or ")
}

// tracefsClosed says what keeps a hook from being found in tracefs, if it is that.
func (f *Facts) tracefsClosed(e *probe.HookError) string {
	needs := slices.ContainsFunc(e.Tried, func(a probe.Attempt) bool {
		return a.Err != nil && a.Variant.Kind == "tp"
	})
	switch {
	case !needs:
		return ""
	case f.Tracefs == "" && !f.isUnknown("tracefs"):
		return "mount tracefs: mount -t tracefs tracefs /sys/kernel/tracing"
	case f.Tracefs != "" && !f.TracefsReadable:
		return fmt.Sprintf("%s may not be read by this user: run it as root, or give it %s", f.Tracefs, system.CapDACReadSearch)
	}
	return ""
}
