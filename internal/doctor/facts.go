// Package doctor checks whether tools can run on this machine. It reads the facts that decide this,
// and suggests remedies for errors.
package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
)

// Facts are the facts that decide whether tools run here. Facts that this process cannot determine
// are absent and listed in Unknown.
type Facts struct {
	Kernel       string `json:"kernel" help:"release of the kernel"`
	Architecture string `json:"architecture" help:"in Go's notation: amd64, arm64"`

	BTF        string `json:"btf,omitempty" help:"file with the kernel's BTF; absent if there is none"`
	RingBuffer *bool  `json:"ring_buffer,omitempty" help:"whether the kernel has the BPF ring buffer (5.8); otherwise perf buffers are used"`

	Tracefs         string `json:"tracefs,omitempty" help:"mount point of tracefs; absent if it is not mounted"`
	TracefsReadable bool   `json:"tracefs_readable" help:"whether this process can read tracefs"`
	Lockdown        string `json:"lockdown,omitempty" help:"mode of kernel lockdown: none, integrity or confidentiality"`

	Capabilities  []string `json:"capabilities" help:"effective capabilities of this process"`
	UserNamespace bool     `json:"user_namespace" help:"whether this process is in a child user namespace, whose capabilities do not apply to BPF"`
	PIDNamespace  bool     `json:"pid_namespace" help:"whether corescope runs in a child PID namespace: --pid and --tid have the IDs of that namespace, rows those of the initial one"`
	OtherProc     bool     `json:"other_proc" help:"whether /proc belongs to another PID namespace than corescope: --pid and --tid are refused, and no files of processes are read"`
	Seccomp       string   `json:"seccomp,omitempty" help:"seccomp mode of this process: none, strict or filter"`

	PerfEventParanoid       *int `json:"perf_event_paranoid,omitempty" help:"kernel.perf_event_paranoid"`
	KptrRestrict            *int `json:"kptr_restrict,omitempty" help:"kernel.kptr_restrict"`
	UnprivilegedBPFDisabled *int `json:"unprivileged_bpf_disabled,omitempty" help:"kernel.unprivileged_bpf_disabled"`
	JIT                     *int `json:"bpf_jit_enable,omitempty" help:"net.core.bpf_jit_enable: 1 if BPF programs are compiled, 0 if they are interpreted"`

	Cgroups       []system.CgroupMount `json:"cgroups" help:"mounted cgroup hierarchies"`
	CgroupDefault string               `json:"cgroup_default,omitempty" help:"hierarchy that the cgroups of events belong to: v2, or a controller of v1"`
	Runtimes      []string             `json:"runtimes" help:"container runtimes whose directories exist"`

	MemlockBytes  *uint64 `json:"memlock_bytes,omitempty" help:"limit of locked memory; absent if unlimited"`
	MemlockCounts *bool   `json:"memlock_counts,omitempty" help:"whether BPF maps count as locked memory (before 5.11)"`
	OpenFiles     *uint64 `json:"open_files,omitempty" help:"limit of open files; absent if unlimited"`

	Unknown []string `json:"unknown" help:"keys of the facts that this process could not determine"`

	effective system.Capabilities
}

// Read reads the facts of the machine whose root directory is root; "/" is this machine. btf is a
// file that replaces the kernel's own BTF, or "".
func Read(root, btf string) *Facts {
	r := &reader{root, &Facts{Architecture: runtime.GOARCH, Unknown: []string{}}}
	r.Kernel, _ = r.text("kernel", "proc/sys/kernel/osrelease")
	r.readBTF(btf)
	r.readMounts()
	r.readStatus()
	r.readPIDNamespace()
	r.readLimits()
	r.PerfEventParanoid = r.sysctl("perf_event_paranoid", "kernel/perf_event_paranoid")
	r.KptrRestrict = r.sysctl("kptr_restrict", "kernel/kptr_restrict")
	r.UnprivilegedBPFDisabled = r.sysctl("unprivileged_bpf_disabled", "kernel/unprivileged_bpf_disabled")
	r.JIT = r.sysctl("bpf_jit_enable", "net/core/bpf_jit_enable")
	r.readCgroups()
	r.Runtimes = system.Runtimes(root)
	return r.Facts
}

// reader reads the facts.
type reader struct {
	root string
	*Facts
}

func (r *reader) path(name string) string { return filepath.Join("/", r.root, name) }

func (r *reader) unknown(key string) { r.Unknown = append(r.Unknown, key) }

// text reads a small file of the kernel. If that fails, it adds key to Unknown and returns false.
func (r *reader) text(key, name string) (string, bool) {
	data, err := os.ReadFile(r.path(name))
	if err != nil {
		r.unknown(key)
	}
	return strings.TrimSpace(string(data)), err == nil
}

func (r *reader) sysctl(key, name string) *int {
	text, ok := r.text(key, "proc/sys/"+name)
	n, err := strconv.Atoi(text)
	if err == nil {
		return &n
	}
	if ok {
		r.unknown(key)
	}
	return nil
}

// initialUserNamespace is the link of the initial user namespace (PROC_USER_INIT_INO).
const initialUserNamespace = "user:[4026531837]"

// readStatus reads the privileges of this thread. Those of the process are the same, except in
// tests, which drop privileges in a single thread.
func (r *reader) readStatus() {
	if ns, err := os.Readlink(r.path("proc/thread-self/ns/user")); err != nil {
		r.unknown("user_namespace")
	} else {
		r.UserNamespace = ns != initialUserNamespace
	}
	status, ok := r.status()
	if !ok {
		r.unknown("capabilities")
	}
	r.effective, r.Capabilities = status.effective, status.effective.Names()
	if mode := status.seccomp; mode >= 0 && mode < 3 {
		r.Seccomp = [...]string{"none", "strict", "filter"}[mode]
	} else {
		r.unknown("seccomp")
	}
}

// threadStatus is the part of the status of this thread that is needed.
type threadStatus struct {
	effective system.Capabilities
	seccomp   int // a SECCOMP_MODE_ constant of linux/seccomp.h, -1 if unknown
}

// status reads /proc/thread-self/status, or asks the kernel by system calls if the file does not
// exist, as in a /proc of another PID namespace.
func (r *reader) status() (s threadStatus, ok bool) {
	text, err := os.ReadFile(r.path("proc/thread-self/status"))
	switch {
	case err == nil:
		return parseStatus(string(text)), true
	case r.isThisMachine():
		return callStatus()
	}
	return threadStatus{seccomp: -1}, false
}

func parseStatus(text string) threadStatus {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		key, val, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(val)
	}
	effective, _ := strconv.ParseUint(fields["CapEff"], 16, 64)
	s := threadStatus{effective: system.Capabilities(effective), seccomp: -1}
	if mode, err := strconv.Atoi(fields["Seccomp"]); err == nil {
		s.seccomp = mode
	}
	return s
}

func callStatus() (s threadStatus, ok bool) {
	s.seccomp = -1
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err == nil {
		s.seccomp = mode
	}
	var err error
	s.effective, err = system.Effective()
	return s, err == nil
}

// isThisMachine reports whether the facts are those of this machine and process, so that system
// calls have the same results as the files.
func (r *reader) isThisMachine() bool { return r.path("") == "/" }

func (r *reader) readPIDNamespace() {
	ns, err := system.ReadPIDNamespace(r.root)
	r.OtherProc, r.PIDNamespace = ns.OtherProc, err == nil && !ns.Initial
	if err != nil {
		r.unknown("pid_namespace")
	}
}

// readLimits reads the soft limits.
func (r *reader) readLimits() {
	if r.isThisMachine() {
		r.MemlockBytes = r.limit("memlock_bytes", unix.RLIMIT_MEMLOCK)
		r.OpenFiles = r.limit("open_files", unix.RLIMIT_NOFILE)
		return
	}
	text, ok := r.text("open_files", "proc/thread-self/limits")
	if !ok {
		r.unknown("memlock_bytes")
	}
	for line := range strings.Lines(text) {
		for name, limit := range map[string]**uint64{"Max locked memory ": &r.MemlockBytes, "Max open files ": &r.OpenFiles} {
			rest, ok := strings.CutPrefix(line, name)
			if n, err := strconv.ParseUint(first(rest), 10, 64); ok && err == nil {
				*limit = &n
			}
		}
	}
}

// limit returns a soft limit of this process, nil if it is unlimited or unknown.
func (r *reader) limit(key string, resource int) *uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		r.unknown(key)
		return nil
	}
	if limit.Cur == unix.RLIM_INFINITY {
		return nil
	}
	return &limit.Cur
}

func first(text string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(text), " ")
	return word
}

func (r *reader) readCgroups() {
	r.Cgroups = []system.CgroupMount{}
	c, err := system.OpenCgroups(r.root)
	if err != nil {
		if !errors.Is(err, system.ErrNoCgroups) {
			r.unknown("cgroups")
		}
		return
	}
	r.Cgroups = c.Mounts()
	if r.CgroupDefault = c.Default(); r.CgroupDefault == "" {
		r.CgroupDefault = "v2"
	}
}
