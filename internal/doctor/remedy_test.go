package doctor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

func ptr[T any](v T) *T { return &v }

// hookError returns a HookError whose variants have these sections and all failed with err.
func hookError(err error, sections ...string) error {
	e := &probe.HookError{Hook: "h"}
	for _, section := range sections {
		kind, _, _ := strings.Cut(section, "/")
		e.Tried = append(e.Tried, probe.Attempt{Variant: probe.Variant{Kind: kind, Where: []string{section}}, Err: err})
	}
	return fmt.Errorf("attach: %w", e)
}

func TestRemedy(t *testing.T) {
	all := system.Capabilities(1<<41 - 1)
	denied := fmt.Errorf("create maps: %w", probe.ErrNotPermitted)
	absent := ebpf.ErrNotSupported
	for _, tt := range []struct {
		name  string
		err   error
		facts Facts
		needs system.Capabilities
		want  string // the beginning; "" for none
	}{
		{"unknown error", errors.New("disk full"), Facts{}, Needs, ""},
		{"no capabilities", denied, Facts{}, Needs, "missing CAP_BPF, CAP_PERFMON: run corescope as root, or with CAP_BPF, CAP_PERFMON"},
		{"one capability", denied, Facts{effective: system.Set(system.CapBPF)}, Needs, "missing CAP_PERFMON: run corescope as root, or with CAP_BPF, CAP_PERFMON"},
		{"capability of an option", denied, Facts{effective: Needs}, Needs | system.Set(system.CapSysAdmin), "missing CAP_SYS_ADMIN: "},
		{"CAP_SYS_ADMIN", denied, Facts{effective: system.Set(system.CapSysAdmin)}, Needs, "all capabilities are present"},
		{"user namespace", denied, Facts{effective: all, UserNamespace: true}, Needs, "capabilities of a child user namespace"},
		{"locked memory", denied, Facts{effective: Needs, MemlockBytes: ptr[uint64](65536), MemlockCounts: ptr(true)}, Needs,
			"BPF maps count as locked memory on this kernel, and the limit is 64 KiB: set ulimit -l unlimited"},
		{"locked memory without BPF maps", denied, Facts{effective: Needs, MemlockBytes: ptr[uint64](65536), MemlockCounts: ptr(false)}, Needs,
			"all capabilities are present"},
		{"locked memory with CAP_SYS_RESOURCE", denied,
			Facts{effective: Needs | system.Set(system.CapSysResource), MemlockBytes: ptr[uint64](65536), MemlockCounts: ptr(true)}, Needs, "all capabilities are present"},
		{"perf events of Debian", denied, Facts{effective: Needs, PerfEventParanoid: ptr(3)}, Needs, "kernel.perf_event_paranoid is 3, "},
		{"seccomp", denied, Facts{effective: all, Seccomp: "filter", PerfEventParanoid: ptr(3)}, Needs, "system calls are filtered by seccomp"},
		{"security module", denied, Facts{effective: all, Seccomp: "none"}, Needs, "all capabilities are present: check the kernel log"},
		{"lockdown for root", hookError(unix.EPERM, "tp_btf/x"), Facts{effective: all, Lockdown: "confidentiality"}, Needs, "kernel lockdown is"},
		{"lockdown by the verifier", hookError(&ebpf.VerifierError{Cause: unix.EINVAL}, "raw_tp/x"),
			Facts{effective: all, Lockdown: "confidentiality"}, Needs, "kernel lockdown is"},
		{"lockdown integrity", denied, Facts{effective: all, Lockdown: "integrity"}, Needs, "all capabilities are present"},
		{"no BTF", fmt.Errorf("load: %w", probe.ErrNoBTF), Facts{Kernel: "5.4.0-x"}, Needs, "provide the BTF of kernel 5.4.0-x with --btf FILE or CORESCOPE_BTF=FILE: "},
		{"memory cgroup", fmt.Errorf("create maps: %w", unix.ENOMEM), Facts{}, Needs, "raise the memory limit of the cgroup"},
		{"memory for a program", hookError(unix.ENOMEM, "tp_btf/x"), Facts{}, Needs, "raise the memory limit of the cgroup"},
		{"descriptors", fmt.Errorf("create maps: %w", unix.EMFILE), Facts{OpenFiles: ptr[uint64](1024)}, Needs,
			"raise the limit of open files (now 1024) with ulimit -n"},
		{"descriptors for a program", hookError(unix.EMFILE, "tp_btf/x"), Facts{}, Needs, "raise the limit of open files with ulimit -n"},
		{"system-wide descriptors", fmt.Errorf("create maps: %w", unix.ENFILE), Facts{}, Needs, "the system-wide limit of open files is reached: "},
		{"no system call", fmt.Errorf("create maps: %w", unix.ENOSYS), Facts{}, Needs, "the kernel lacks the system call"},
		{"no supported variant", hookError(absent, "fentry/x", "tp_btf/x", "kprobe/x", "kprobe/y"), Facts{effective: all}, Needs,
			"the hook needs " + probe.Needs("fentry/x") + ", or " + probe.Needs("tp_btf/x") + ", or " + probe.Needs("kprobe/x")},
		{"no tracefs", hookError(unix.ENOENT, "tp/x/y", "kprobe/x"), Facts{effective: all}, Needs, "mount tracefs: mount -t tracefs"},
		{"tracefs not readable", hookError(unix.ENOENT, "tp/x/y"), Facts{effective: all, Tracefs: "/t"}, Needs, "no permission to read /t: "},
		{"no such tracepoint", hookError(unix.ENOENT, "tp/x/y"), Facts{effective: all, Tracefs: "/t", TracefsReadable: true}, Needs,
			"the hook needs " + probe.Needs("tp/x/y")},
		{"tracefs unknown", hookError(unix.ENOENT, "tp/x/y"), Facts{effective: all, Unknown: []string{"tracefs"}}, Needs, "the hook needs "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Remedy(tt.err, &tt.facts, tt.needs)
			if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("%v: %q, want prefix %q", tt.err, got, tt.want)
			}
			if strings.HasSuffix(got, ".") || strings.Contains(got, "\n") {
				t.Errorf("%q is not a part of a sentence", got)
			}
		})
	}
}
