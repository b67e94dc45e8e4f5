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

// hookError is that of a hook whose ways, by section, all failed so.
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
		{"nothing is known", errors.New("disk full"), Facts{}, Needs, ""},
		{"no capabilities", denied, Facts{}, Needs, "lacks CAP_BPF, CAP_PERFMON: run it as root, or give it CAP_BPF, CAP_PERFMON"},
		{"one fewer", denied, Facts{held: system.Set(system.CapBPF)}, Needs, "lacks CAP_PERFMON: run it as root, or give it CAP_BPF, CAP_PERFMON"},
		{"an option's", denied, Facts{held: Needs}, Needs | system.Set(system.CapSysAdmin), "lacks CAP_SYS_ADMIN: "},
		{"before they were apart", denied, Facts{held: system.Set(system.CapSysAdmin)}, Needs, "it has the capabilities"},
		{"user namespace", denied, Facts{held: all, UserNamespace: true}, Needs, "in a user namespace"},
		{"locked memory", denied, Facts{held: Needs, MemlockBytes: ptr[uint64](65536), MemlockCounts: ptr(true)}, Needs,
			"BPF maps count as locked memory on this kernel, of which 64 KiB are allowed: run it with ulimit -l unlimited"},
		{"locked memory that does not matter", denied, Facts{held: Needs, MemlockBytes: ptr[uint64](65536), MemlockCounts: ptr(false)}, Needs,
			"it has the capabilities"},
		{"locked memory that can be raised", denied,
			Facts{held: Needs | system.Set(system.CapSysResource), MemlockBytes: ptr[uint64](65536), MemlockCounts: ptr(true)}, Needs, "it has the"},
		{"perf events of Debian", denied, Facts{held: Needs, PerfEventParanoid: ptr(3)}, Needs, "kernel.perf_event_paranoid is 3, "},
		{"seccomp", denied, Facts{held: all, Seccomp: "filter", PerfEventParanoid: ptr(3)}, Needs, "its system calls are filtered (seccomp)"},
		{"security module", denied, Facts{held: all, Seccomp: "none"}, Needs, "it has the capabilities, so something else"},
		{"lockdown of root's", hookError(unix.EPERM, "tp_btf/x"), Facts{held: all, Lockdown: "confidentiality"}, Needs, "kernel lockdown is"},
		{"lockdown by the verifier", hookError(&ebpf.VerifierError{Cause: unix.EINVAL}, "raw_tp/x"),
			Facts{held: all, Lockdown: "confidentiality"}, Needs, "kernel lockdown is"},
		{"lockdown that lets read", denied, Facts{held: all, Lockdown: "integrity"}, Needs, "it has the capabilities"},
		{"no BTF", fmt.Errorf("load: %w", probe.ErrNoBTF), Facts{Kernel: "5.4.0-x"}, Needs, "give it the BTF of kernel 5.4.0-x with --btf FILE or CORESCOPE_BTF=FILE: "},
		{"memory cgroup", fmt.Errorf("create maps: %w", unix.ENOMEM), Facts{}, Needs, "raise the limit of this process's memory cgroup"},
		{"memory for a program", hookError(unix.ENOMEM, "tp_btf/x"), Facts{}, Needs, "raise the limit of this process's memory cgroup"},
		{"descriptors", fmt.Errorf("create maps: %w", unix.EMFILE), Facts{OpenFiles: ptr[uint64](1024)}, Needs,
			"raise the limit of open files of this process, which is 1024: ulimit -n"},
		{"descriptors for a program", hookError(unix.EMFILE, "tp_btf/x"), Facts{}, Needs, "raise the limit of open files of this process: ulimit -n"},
		{"descriptors of all", fmt.Errorf("create maps: %w", unix.ENFILE), Facts{}, Needs, "the whole system is at its limit: "},
		{"no system call", fmt.Errorf("create maps: %w", unix.ENOSYS), Facts{}, Needs, "the kernel is built without the system call"},
		{"no way", hookError(absent, "fentry/x", "tp_btf/x", "kprobe/x", "kprobe/y"), Facts{held: all}, Needs,
			"the hook needs " + probe.Needs("fentry/x") + ", or " + probe.Needs("tp_btf/x") + ", or " + probe.Needs("kprobe/x")},
		{"no tracefs", hookError(unix.ENOENT, "tp/x/y", "kprobe/x"), Facts{held: all}, Needs, "mount tracefs: mount -t tracefs"},
		{"tracefs closed", hookError(unix.ENOENT, "tp/x/y"), Facts{held: all, Tracefs: "/t"}, Needs, "/t may not be read by this user: "},
		{"tracefs without it", hookError(unix.ENOENT, "tp/x/y"), Facts{held: all, Tracefs: "/t", TracefsReadable: true}, Needs,
			"the hook needs " + probe.Needs("tp/x/y")},
		{"tracefs not known", hookError(unix.ENOENT, "tp/x/y"), Facts{held: all, Unknown: []string{"tracefs"}}, Needs, "the hook needs "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Remedy(tt.err, &tt.facts, tt.needs)
			if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
				t.Errorf("%v: %q, want %q…", tt.err, got, tt.want)
			}
			if strings.HasSuffix(got, ".") || strings.Contains(got, "\n") {
				t.Errorf("%q is not a part of a sentence", got)
			}
		})
	}
}
