package doctor

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/system"
)

// tree creates files in a temporary root directory. A name that ends with "->" is a symbolic link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, strings.TrimSuffix(name, "->"))
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && strings.HasSuffix(name, "->") {
			err = os.Symlink(text, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// types returns the BTF of a kernel with the given features.
func types(t *testing.T, ring, memlock bool) string {
	t.Helper()
	enum := &btf.Enum{Name: "bpf_map_type", Size: 4, Values: []btf.EnumValue{{Name: "BPF_MAP_TYPE_HASH", Value: 1}}}
	if ring {
		enum.Values = append(enum.Values, btf.EnumValue{Name: "BPF_MAP_TYPE_RINGBUF", Value: 27})
	}
	all := []btf.Type{enum}
	if memlock {
		all = append(all, &btf.Struct{Name: "bpf_map_memory", Size: 4, Members: []btf.Member{
			{Name: "pages", Type: &btf.Int{Name: "u32", Size: 4}},
		}})
	}
	b, err := btf.NewBuilder(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

const (
	mounts = `21 1 0:20 / /sys rw - sysfs sysfs rw
22 21 0:7 / /sys/kernel/security rw - securityfs securityfs rw
23 21 0:12 / /trace rw - tracefs tracefs rw
30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate
`
	status = "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t000000c000000000\nCapEff:\t000000c000000000\nSeccomp:\t2\nSeccomp_filters:\t1\n"
	limits = `Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         65536                unlimited            bytes
Max address space         unlimited            unlimited            bytes
`
)

func machine(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"proc/sys/kernel/osrelease":                 "5.10.0-32-amd64\n",
		"proc/sys/kernel/perf_event_paranoid":       "3\n",
		"proc/sys/kernel/kptr_restrict":             "1\n",
		"proc/sys/kernel/unprivileged_bpf_disabled": "2\n",
		"proc/sys/net/core/bpf_jit_enable":          "1\n",
		"proc/self/mountinfo":                       mounts,
		"proc/thread-self/status":                   status,
		"proc/thread-self/limits":                   limits,
		"proc/thread-self/ns/user->":                "user:[4026531837]",
		"proc/self/ns/pid->":                        "pid:[4026531836]",
		"proc/self/status":                          "NSpid:\t7\n",
		"sys/kernel/security/lockdown":              "none [integrity] confidentiality\n",
		"sys/kernel/btf/vmlinux":                    types(t, true, true),
		"sys/fs/cgroup/cgroup.controllers":          "cpu memory\n",
		"sys/fs/cgroup/cgroup.procs":                "",
		"c/memory/cgroup.procs":                     "", // a case mounts a v1 hierarchy at /c
		"trace/events/enable":                       "0\n",
		"run/containerd/x":                          "",
		"var/lib/docker/x":                          "",
	}
}

func TestRead(t *testing.T) {
	root := tree(t, machine(t))
	got := Read(root, "")
	want := &Facts{
		Kernel: "5.10.0-32-amd64", Architecture: got.Architecture,
		BTF: "/sys/kernel/btf/vmlinux", RingBuffer: ptr(true), MemlockCounts: ptr(true),
		Tracefs: "/trace", TracefsReadable: true, Lockdown: "integrity",
		Capabilities: []string{"CAP_BPF", "CAP_PERFMON"}, effective: Needs, Seccomp: "filter",
		PerfEventParanoid: ptr(3), KptrRestrict: ptr(1), UnprivilegedBPFDisabled: ptr(2), JIT: ptr(1),
		Cgroups:       []system.CgroupMount{{Path: "/sys/fs/cgroup", Version: 2}},
		CgroupDefault: "v2", Runtimes: []string{"containerd", "docker"},
		MemlockBytes: ptr[uint64](65536), OpenFiles: ptr[uint64](1024), Unknown: []string{},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestUnknown removes one file at a time: the facts in it become unknown, and no others.
func TestUnknown(t *testing.T) {
	for _, tt := range []struct {
		missing string
		unknown []string
	}{
		{"proc/sys/kernel/osrelease", []string{"kernel"}},
		{"proc/sys/net/core/bpf_jit_enable", []string{"bpf_jit_enable"}},
		{"proc/sys/kernel/perf_event_paranoid", []string{"perf_event_paranoid"}},
		{"proc/self/mountinfo", []string{"tracefs", "lockdown", "cgroups"}},
		{"proc/thread-self/status", []string{"capabilities", "seccomp"}},
		{"proc/thread-self/limits", []string{"open_files", "memlock_bytes"}},
		{"proc/thread-self/ns/user->", []string{"user_namespace"}},
		{"proc/self/status", []string{"pid_namespace"}},
		{"sys/kernel/btf/vmlinux", []string{"ring_buffer", "memlock_counts"}},
		{"sys/kernel/security/lockdown", nil}, // a kernel without lockdown
	} {
		files := machine(t)
		delete(files, tt.missing)
		if got := Read(tree(t, files), "").Unknown; !slices.Equal(got, tt.unknown) {
			t.Errorf("without %s: unknown facts are %q, want %q", tt.missing, got, tt.unknown)
		}
	}
}

func TestReadVariants(t *testing.T) {
	file := filepath.Join(t.TempDir(), "other.btf")
	if err := os.WriteFile(file, []byte(types(t, false, false)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, text string // an empty text removes the file
		btf              string
		isOK             func(*Facts) bool
	}{
		{"BTF from a file", "sys/kernel/btf/vmlinux", "", file, func(f *Facts) bool { return f.BTF == file && !*f.RingBuffer && !*f.MemlockCounts }},
		{"no BTF", "sys/kernel/btf/vmlinux", "", "", func(f *Facts) bool { return f.BTF == "" && f.RingBuffer == nil }},
		{"no such BTF file", "x", "", "/no/such", func(f *Facts) bool { return f.BTF == "" }},
		{"no lockdown", "sys/kernel/security/lockdown", "", "", func(f *Facts) bool { return f.Lockdown == "none" }},
		{"confidentiality", "sys/kernel/security/lockdown", "none integrity [confidentiality]", "",
			func(f *Facts) bool { return f.Lockdown == "confidentiality" && f.lineLockdown().Problem != "" }},
		{"no tracefs", "proc/self/mountinfo", strings.ReplaceAll(mounts, "tracefs", "nofs"), "", func(f *Facts) bool { return f.Tracefs == "" }},
		{"PID namespace", "proc/self/ns/pid->", "pid:[4026532512]", "",
			func(f *Facts) bool { return f.PIDNamespace && !f.OtherProc && f.linePIDNamespace().Problem == "" }},
		{"/proc of another PID namespace", "proc/self/status", "NSpid:\t70\t7\n", "",
			func(f *Facts) bool { return f.OtherProc && f.linePIDNamespace().Problem != "" }},
		{"user namespace", "proc/thread-self/ns/user->", "user:[4026532512]", "",
			func(f *Facts) bool { return f.UserNamespace && f.lineUserNamespace().Problem != "" }},
		{"no limit", "proc/thread-self/limits", "Max locked memory         unlimited            unlimited            bytes\n", "",
			func(f *Facts) bool { return f.MemlockBytes == nil && f.lineMemlock().Value == "no limit" }},
		{"no capabilities", "proc/thread-self/status", "CapEff:\t0000000000000000\nSeccomp:\t0\n", "",
			func(f *Facts) bool {
				return f.effective == 0 && f.Seccomp == "none" && strings.HasPrefix(f.lineCapabilities().Problem, "missing CAP_BPF, CAP_PERFMON")
			}},
		{"hybrid", "proc/self/mountinfo", mounts + "35 31 0:32 / /c/memory rw - cgroup cgroup rw,memory\n", "",
			func(f *Facts) bool {
				return len(f.Cgroups) == 2 && f.cgroups() == "v2 and v1, events have the cgroup in v2"
			}},
		{"no cgroups", "proc/self/mountinfo", "", "", func(f *Facts) bool { return len(f.Cgroups) == 0 && f.Cgroups != nil && f.CgroupDefault == "" }},
	} {
		files := machine(t)
		if files[tt.path] = tt.text; tt.text == "" {
			delete(files, tt.path)
		}
		if f := Read(tree(t, files), tt.btf); !tt.isOK(f) {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
}

// TestLines checks that no line is empty, with all facts known and with none.
func TestLines(t *testing.T) {
	for _, f := range []*Facts{Read(tree(t, machine(t)), ""), Read(t.TempDir(), "")} {
		lines := f.Lines()
		for _, l := range lines {
			if strings.TrimSpace(l.Name) == "" || strings.TrimSpace(l.Value) == "" {
				t.Errorf("line %+v of %+v", l, f)
			}
		}
	}
}

// TestUnknownLines checks that facts that cannot be read are not reported as problems or as absent.
func TestUnknownLines(t *testing.T) {
	for _, l := range Read(t.TempDir(), "").Lines() {
		switch l.Name {
		case "capabilities", "locked memory", "open files", "seccomp", "cgroups":
			if !strings.HasPrefix(l.Value, unknown) || l.Problem != "" {
				t.Errorf("line %+v, want %q", l, unknown)
			}
		}
	}
}

// TestSystemCalls compares the facts of this process by system calls with those in its files.
func TestSystemCalls(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	got, ok := callStatus()
	if want := parseStatus(string(text)); !ok || got != want {
		t.Errorf("status by system calls is %+v, want %+v", got, want)
	}
	limits, err := os.ReadFile("/proc/thread-self/limits")
	if err != nil {
		t.Fatal(err)
	}
	machine := Read("/", "")
	files := Read(tree(t, map[string]string{"proc/thread-self/limits": string(limits)}), "")
	if !reflect.DeepEqual(machine.MemlockBytes, files.MemlockBytes) || !reflect.DeepEqual(machine.OpenFiles, files.OpenFiles) {
		t.Errorf("limits of this machine %+v, in its file %+v", machine, files)
	}
}
