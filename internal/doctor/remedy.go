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

// confidentiality is the lockdown mode in which BPF programs must not read the kernel's memory.
const confidentiality = "confidentiality"

// Remedies that depend on a single fact.
const (
	lockedDown = "kernel lockdown is in mode confidentiality, in which BPF programs cannot read kernel memory: " +
		"boot with lockdown=integrity or without lockdown"
	otherProc = "/proc belongs to another PID namespace than corescope: " +
		"--pid and --tid are refused, and user stacks are not symbolized: " +
		"mount the /proc of this namespace with 'mount -t proc proc /proc', or run corescope in the PID namespace of /proc"
	inUserNamespace = "capabilities of a child user namespace do not apply to BPF: " +
		"run corescope in the initial user namespace, not in a rootless container"
)

// Needs are the capabilities that every tool needs.
const Needs = system.Capabilities(1<<system.CapBPF | 1<<system.CapPerfmon)

// Remedy suggests, as a part of a sentence, what the user can do about an error that prevented a
// tool from starting. It returns "" if nothing is known. needs are the capabilities that the run
// needs.
func Remedy(err error, f *Facts, needs system.Capabilities) string {
	var hook *probe.HookError
	isHook := errors.As(err, &hook)
	denied := errors.Is(err, probe.ErrNotPermitted)
	switch {
	case errors.Is(err, unix.ENOMEM):
		return "raise the memory limit of the cgroup (memory.max), or free memory"
	case errors.Is(err, unix.EMFILE):
		return f.openFiles()
	case errors.Is(err, unix.ENFILE):
		return "the system-wide limit of open files is reached: raise fs.file-max"
	case errors.Is(err, unix.ENOSYS):
		return "the kernel lacks the system call: it must be built with CONFIG_BPF_SYSCALL and CONFIG_PERF_EVENTS"
	case errors.Is(err, probe.ErrNoBTF):
		return f.noBTF()
	case f.Lockdown == confidentiality && (denied || isHook):
		return lockedDown
	case denied:
		return f.notPermitted(needs)
	case isHook:
		return f.unsupported(hook)
	}
	return ""
}

func (f *Facts) openFiles() string {
	limit := ""
	if f.OpenFiles != nil {
		limit = fmt.Sprintf(" (now %d)", *f.OpenFiles)
	}
	return "raise the limit of open files" + limit + " with ulimit -n"
}

func (f *Facts) noBTF() string {
	return fmt.Sprintf("provide the BTF of kernel %s with --btf FILE or CORESCOPE_BTF=FILE: the BTFHub archive has it for kernels "+
		"of many distributions, and pahole --btf_encode_detached=FILE creates it from a vmlinux with debug symbols; "+
		"kernels with CONFIG_DEBUG_INFO_BTF contain it", f.Kernel)
}

// missing returns the needed capabilities that are not effective, none if that is unknown.
// CAP_SYS_ADMIN includes CAP_BPF and CAP_PERFMON, which were separated from it in Linux 5.8.
func (f *Facts) missing(needs system.Capabilities) system.Capabilities {
	if f.isUnknown("capabilities") {
		return 0
	}
	effective := f.effective
	if effective.Has(system.CapSysAdmin) {
		effective |= system.Set(system.CapBPF, system.CapPerfmon)
	}
	return needs &^ effective
}

// notPermitted checks possible reasons in the order in which the kernel does: capabilities, the
// user namespace, limits, then filters and security modules.
func (f *Facts) notPermitted(needs system.Capabilities) string {
	missing := f.missing(needs)
	switch {
	case missing != 0:
		return fmt.Sprintf("missing %s: run corescope as root, or with %s", missing, needs)
	case f.UserNamespace:
		return inUserNamespace
	case f.isMemlockLimited():
		return f.memlock()
	case f.isPerfRestricted():
		return f.paranoid()
	case f.isUnknown("capabilities"):
		return fmt.Sprintf("run corescope as root, or with %s", needs)
	case f.Seccomp == "filter":
		return "system calls are filtered by seccomp, as in most containers: allow bpf and perf_event_open " +
			"(docker run --security-opt seccomp=unconfined)"
	}
	return "all capabilities are present: check the kernel log for a refusal by a security module (AppArmor, SELinux)"
}

// isMemlockLimited reports whether creating maps can exceed a limit of locked memory that this
// process cannot raise.
func (f *Facts) isMemlockLimited() bool {
	return f.MemlockBytes != nil && f.MemlockCounts != nil && *f.MemlockCounts && !f.effective.Has(system.CapSysResource)
}

func (f *Facts) memlock() string {
	return fmt.Sprintf("BPF maps count as locked memory on this kernel, and the limit is %d KiB: "+
		"set ulimit -l unlimited, or run corescope with CAP_SYS_RESOURCE", *f.MemlockBytes>>10)
}

// isPerfRestricted reports whether perf events require CAP_SYS_ADMIN: kernels of Debian and Ubuntu
// have values of perf_event_paranoid above 2, for which CAP_PERFMON is not sufficient.
func (f *Facts) isPerfRestricted() bool {
	return f.PerfEventParanoid != nil && *f.PerfEventParanoid > 2 && !f.effective.Has(system.CapSysAdmin)
}

func (f *Facts) paranoid() string {
	return fmt.Sprintf("kernel.perf_event_paranoid is %d, which restricts perf events to CAP_SYS_ADMIN: "+
		"set it to 2, or run corescope with CAP_SYS_ADMIN", *f.PerfEventParanoid)
}

func (f *Facts) isUnknown(key string) bool { return slices.Contains(f.Unknown, key) }

// unsupported suggests what would make a hook work.
func (f *Facts) unsupported(e *probe.HookError) string {
	if remedy := f.tracefsRemedy(e); remedy != "" {
		return remedy
	}
	var all []string
	for _, a := range e.Tried {
		if needs := a.Variant.Needs(); needs != "" && !slices.Contains(all, needs) {
			all = append(all, needs)
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "the hook needs " + strings.Join(all, ", or ")
}

// tracefsRemedy returns the remedy if an attach type needs tracefs and it is not accessible,
// otherwise "".
func (f *Facts) tracefsRemedy(e *probe.HookError) string {
	needs := slices.ContainsFunc(e.Tried, func(a probe.Attempt) bool {
		return a.Err != nil && a.Variant.Kind == "tp"
	})
	switch {
	case !needs:
		return ""
	case f.Tracefs == "" && !f.isUnknown("tracefs"):
		return "mount tracefs: mount -t tracefs tracefs /sys/kernel/tracing"
	case f.Tracefs != "" && !f.TracefsReadable:
		return fmt.Sprintf("no permission to read %s: run corescope as root, or with %s", f.Tracefs, system.CapDACReadSearch)
	}
	return ""
}
