package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	ownProgram = "python3 program"
	otherTasks = "those between the readings and the start and end of the tool, and those while a process runs that this guest hides from BPF"
)

// kernelCases compare tools for memory, locks and CPUs.
func kernelCases() []comparison {
	python, perf := []string{"python3"}, []string{"perf", "dd"}
	all := []comparison{
		{"capable", ownProgram, "errors of the program's calls", python, capable},
		{"ttysnoop", ownProgram, "what the program reads from the other end", python, ttysnoop},
		{"sigsnoop", pythonProgram, "strace -f", []string{"strace", "python3", "unshare"}, sigsnoop},
		{"seccompprofile", pythonProgram, "strace -f", []string{"strace", "python3", "unshare"}, seccompprofile},
		{"futexctn", ownProgram, "clock of the program", python, futexctn},
		{"deadlock", ownProgram, "addresses of the program's mutexes", python, deadlock},
		{"slabratetop", ownProgram, "the program's count", python, slabratetop},
		{"drsnoop", "cat in a memory cgroup", "/proc/vmstat", nil, drsnoop},
		{"compactsnoop", "write to compact_memory", "/proc/zoneinfo", nil, compactsnoop},
		{"oomkill", "python3 in a memory cgroup", "oom_kill of the cgroup", python, oomkill},
		{"throttletop", "sh in a cgroup with a CPU limit", "cpu.stat", nil, throttletop},
		{"cpuwalk", xzProgram, "/proc/PID/schedstat", []string{"xz"}, cpuwalk},
		{"cpuunclaimed", xzProgram, "/proc/stat", []string{"xz"}, cpuunclaimed},
		{"runqlen", "4 processes on one CPU", "/proc/PID/schedstat", []string{"taskset"}, runqlen},
		{"softirqslower", "dd of a file without the page cache", "/proc/softirqs", []string{"dd"}, softirqslower},
	}
	for _, p := range []struct{ tool, event, what string }{
		{"wqlat", "workqueue:workqueue_execute_start", "works that started"},
		{"klockstat", "lock:contention_end", "waits for locks that ended"},
		{"kvmexit", "kvm:kvm_exit", "exits"},
	} {
		all = append(all, comparison{p.tool, "dd of a file without the page cache", "perf stat " + p.event, perf, counted(p.tool, p.event, p.what)})
	}
	return all
}

// own runs a Python program under a tool, in a cgroup of its own. The program calls log(...) with
// numbers by name, which are returned.
func (m *machine) own(ctx context.Context, program string, args ...string) (*observed, map[string]float64, error) {
	log := m.path(args[0] + ".json")
	program = fmt.Sprintf("import json, os, time, ctypes\nf = open(%q, 'w')\ndef log(**n): json.dump(n, f)\n%s", log, program)
	h, err := hold(ctx, nil, "python3", "-c", program)
	if err != nil {
		return nil, nil, err
	}
	defer h.close()
	if !slices.Contains(args, "--pid") {
		args = append(args, "--cgroup", h.cgroup)
	} else {
		args[slices.Index(args, "--pid")+1] = strconv.Itoa(h.pid)
	}
	out, err := m.observe(ctx, h.finish, args...)
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(log)
	if err != nil {
		return nil, nil, fmt.Errorf("read log of program: %w", err)
	}
	var numbers map[string]float64
	if err := json.Unmarshal(text, &numbers); err != nil {
		return nil, nil, fmt.Errorf("read log of program: %w", err)
	}
	return out, numbers, nil
}

// capable compares the failed checks with the calls that fail for lack of a capability.
func capable(ctx context.Context, m *machine) ([]figure, error) {
	out, n, err := m.own(ctx, `
import socket
os.setresuid(1000, 1000, 1000)
failed = {"chroot": 0, "hostname": 0, "raw": 0}
for name, call in (("chroot", lambda: os.chroot("/")), ("hostname", lambda: socket.sethostname("x")),
                   ("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))):
    for _ in range(5):
        try:
            call()
        except PermissionError:
            failed[name] += 1
log(**failed)
`, "capable", "--denied")
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, c := range []struct{ name, capability string }{{"chroot", "CAP_SYS_CHROOT"}, {"hostname", "CAP_SYS_ADMIN"}, {"raw", "CAP_NET_RAW"}} {
		f := figure{"failed checks of " + c.capability, float64(len(out.where("capability", c.capability).rows)), n[c.name], 0, ""}
		if c.capability == "CAP_SYS_ADMIN" {
			f.slack, f.why = 2, "the kernel makes this check too, without an audit record, when the process needs more memory"
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// ttysnoop compares the bytes with those at the other end of a pseudo terminal.
func ttysnoop(ctx context.Context, m *machine) ([]figure, error) {
	out, n, err := m.own(ctx, `
import pty, tty, threading
master, slave = pty.openpty()
tty.setraw(slave)
got = []
def read():
    while sum(got) < 20 * 1000 + 20 * 8:
        got.append(len(os.read(master, 65536)))
reader = threading.Thread(target=read)
reader.start()
for _ in range(20):
    os.write(slave, b"x" * 1000)
    os.writev(slave, [b"ab", b"cdef", b"gh"])
reader.join()
log(bytes=sum(got))
`, "ttysnoop")
	if err != nil {
		return nil, err
	}
	shown := 0.0
	for _, r := range out.rows {
		shown += float64(len(r.bytes("data"))) + r.num("missing_bytes")
	}
	return []figure{{"bytes of the terminal", shown, n["bytes"], 0, ""}}, nil
}

// sigsnoop compares signals with the calls that send them.
func sigsnoop(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.scripted(ctx, []string{"kill"}, "sigsnoop", "-s", "USR1")
	if err != nil {
		return nil, err
	}
	sends := func(c call) bool { return c.name == "kill" && c.ret == 0 && strings.HasSuffix(c.args, "SIGUSR1") }
	return []figure{{"signals SIGUSR1", float64(len(out.rows)) + out.lost(), count(calls, sends), 0, ""}}, nil
}

// seccompprofile compares the calls by name. strace does not show the reads of the shell that waits.
func seccompprofile(ctx context.Context, m *machine) ([]figure, error) {
	out, calls, err := m.scripted(ctx, nil, "seccompprofile")
	if err != nil {
		return nil, err
	}
	names := map[string]float64{}
	for _, r := range out.rows {
		names[r.str("syscall")] += r.num("count")
	}
	wanted := map[string]float64{}
	for _, c := range calls {
		wanted[c.name]++
	}
	differ := 0.0
	for name := range wanted {
		if names[name] == 0 {
			differ++
		}
	}
	for name := range names {
		if wanted[name] == 0 {
			differ++
		}
	}
	return []figure{
		{"system calls by name", float64(len(names)), float64(len(wanted)), 1, "restart_syscall, which strace shows as the call that it continues"},
		{"names that only one of the two has", differ, 0, 1, "the same"},
	}, nil
}

func futexctn(ctx context.Context, m *machine) ([]figure, error) {
	out, n, err := m.own(ctx, `
libc = ctypes.CDLL(None, use_errno=True)
class T(ctypes.Structure): _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
word, t, total = ctypes.c_int(0), T(0, 10000000), 0
for _ in range(50):
    begin = time.monotonic_ns()
    libc.syscall(202 if os.uname().machine == "x86_64" else 98, ctypes.byref(word), 0, 0, ctypes.byref(t), None, 0)
    total += time.monotonic_ns() - begin
log(us=total / 1000, waits=50)
`, "futexctn", "--outcomes", "-s")
	if err != nil {
		return nil, err
	}
	waits, us := 0.0, 0.0
	for _, r := range out.rows {
		if key, _ := r["key"].(map[string]any); row(key).str("outcome") == "timeout" {
			waits, us = waits+r.num("count"), us+r.num("sum")
		}
	}
	return []figure{
		{"waits for the futex", waits, n["waits"], 0, ""},
		{"time of these in us", us, n["us"], n["us"] / 10, "10 %: the program's clock includes its own calls, and preemption"},
	}, nil
}

// deadlock compares the mutexes of the cycle that a program makes, one thread after the other.
func deadlock(ctx context.Context, m *machine) ([]figure, error) {
	out, n, err := m.own(ctx, `
import threading
libc = ctypes.CDLL(None)
a, b = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
def both(x, y):
    for f, m in ((libc.pthread_mutex_lock, x), (libc.pthread_mutex_lock, y), (libc.pthread_mutex_unlock, y), (libc.pthread_mutex_unlock, x)):
        f(m)
for x, y in ((a, b), (b, a)):
    t = threading.Thread(target=both, args=(x, y))
    t.start(); t.join()
log(a=ctypes.addressof(a), b=ctypes.addressof(b))
`, "deadlock")
	if err != nil {
		return nil, err
	}
	seen, cycles := 0.0, map[float64]bool{}
	for _, r := range out.rows {
		cycles[r.num("cycle")] = true
		address, _ := strconv.ParseUint(r.str("mutex"), 0, 64)
		if r.str("step") == "acquires" && (float64(address) == n["a"] || float64(address) == n["b"]) {
			seen++
		}
	}
	return []figure{{"cycles", float64(len(cycles)), 1, 0, ""}, {"mutexes of the program in the cycle", seen, 2, 0, ""}}, nil
}

func slabratetop(ctx context.Context, m *machine) ([]figure, error) {
	out, n, err := m.own(ctx, `
ctypes.CDLL(None).prctl(15, b"opener")
for _ in range(20000):
    os.close(os.open("/", os.O_RDONLY))
log(opens=20000)
`, "slabratetop", "3600", "--comm", "opener")
	if err != nil {
		return nil, err
	}
	return []figure{{"objects of the cache filp", out.where("cache", "filp").sum("allocs"), n["opens"], 0, ""}}, nil
}

// memoryGroup creates a cgroup with a limit of memory, and returns its directory.
func memoryGroup(limit int) (dir string, err error) {
	return controlGroup("memory", map[string]string{"memory.limit_in_bytes": strconv.Itoa(limit)},
		map[string]string{"memory.max": strconv.Itoa(limit)})
}

// controlGroup creates a cgroup in the hierarchy of a controller, with the files of v1 or of v2.
func controlGroup(controller string, v1, v2 map[string]string) (dir string, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("read mounts: %w", err)
	}
	files := v2
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), controller) {
			dir, files = f[1], v1
		}
	}
	if dir == "" {
		if dir, err = cgroup2(); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+controller), 0); err != nil {
			return "", fmt.Errorf("%w: %w", errMissing, err)
		}
	}
	dir = filepath.Join(dir, "corescope-truth-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("%w: %w", errMissing, err)
	}
	for name, value := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0); err != nil {
			return "", fmt.Errorf("%w: %w", errMissing, err)
		}
	}
	return dir, nil
}

// within runs a command in a cgroup. It can fail.
func within(ctx context.Context, dir string, command ...string) {
	argv := append([]string{"-c", `echo $$ > "$0/cgroup.procs"; exec "$@"`, dir}, command...)
	_ = exec.CommandContext(ctx, "sh", argv...).Run()
}

// drsnoop compares the reclaimed pages with the kernel's counters of all reclaim.
func drsnoop(ctx context.Context, m *machine) ([]figure, error) {
	dir, err := memoryGroup(40 << 20)
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	file, err := m.large(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := output(ctx, "dd", "if="+file, "iflag=nocache", "count=0"); err != nil { // drops its pages
		return nil, err
	}
	var want float64
	out, err := m.observe(ctx, func() (err error) {
		want, err = around(func() (float64, error) {
			all, err := sumOf("/proc/vmstat", "pgsteal_file ")
			anon, _ := sumOf("/proc/vmstat", "pgsteal_anon ")
			return all + anon, err
		}, func() error {
			within(ctx, dir, "cat", file)
			return nil
		})
		return err
	}, "drsnoop")
	if err != nil {
		return nil, err
	}
	return []figure{{"reclaimed pages", out.sum("reclaimed_pages"), want, want / 50, "2 %: reclaim of other tasks in the background (kswapd)"}}, nil
}

// compactsnoop compares the zones with those that have pages.
func compactsnoop(ctx context.Context, m *machine) ([]figure, error) {
	text, err := os.ReadFile("/proc/zoneinfo")
	if err != nil {
		return nil, fmt.Errorf("read zones: %w", err)
	}
	zones := 0.0
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "managed" && f[1] != "0" {
			zones++
		}
	}
	out, err := m.observe(ctx, func() error { return os.WriteFile("/proc/sys/vm/compact_memory", []byte("1"), 0) }, "compactsnoop", "--filter", "order == -1", "--pid", strconv.Itoa(os.Getpid()))
	if err != nil {
		return nil, err
	}
	return []figure{{"zones that are compacted", float64(len(out.rows)), zones, 0, ""}}, nil
}

func oomkill(ctx context.Context, m *machine) ([]figure, error) {
	dir, err := memoryGroup(30 << 20)
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	file := filepath.Join(dir, "memory.oom_control")
	if _, err := os.Stat(file); err != nil {
		file = filepath.Join(dir, "memory.events")
	}
	var want float64
	out, err := m.observe(ctx, func() (err error) {
		want, err = around(func() (float64, error) { return sumOf(file, "oom_kill ") }, func() error {
			for range 5 {
				within(ctx, dir, "python3", "-c", "b = bytearray(60 << 20)")
			}
			return nil
		})
		return err
	}, "oomkill")
	if err != nil {
		return nil, err
	}
	return []figure{{"victims", float64(len(out.where("oom_cgroup", "/"+filepath.Base(dir)).rows)), want, 0, ""}}, nil
}

// throttletop compares with cpu.stat, read before and after the run.
func throttletop(ctx context.Context, m *machine) ([]figure, error) {
	dir, err := controlGroup("cpu", map[string]string{"cpu.cfs_quota_us": "20000"}, map[string]string{"cpu.max": "20000 100000"})
	if err != nil {
		return nil, err
	}
	defer os.Remove(dir)
	stat := filepath.Join(dir, "cpu.stat")
	before, err := sumOf(stat, "nr_throttled ")
	if err != nil {
		return nil, err
	}
	out, err := m.observe(ctx, func() error {
		within(ctx, dir, "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
		time.Sleep(1200 * time.Millisecond) // a report after the last period
		return nil
	}, "throttletop", "1")
	if err != nil {
		return nil, err
	}
	after, err := sumOf(stat, "nr_throttled ")
	if err != nil {
		return nil, err
	}
	return []figure{{"throttled periods", out.where("cgroup", "/"+filepath.Base(dir)).sum("throttled_periods"), after - before, 0, ""}}, nil
}

// cpuwalk compares the samples of a process with its CPU time.
func cpuwalk(ctx context.Context, m *machine) ([]figure, error) {
	h, err := m.holdXZ(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	out, err := m.observe(ctx, h.finish, "cpuwalk", "-f", "499", "--pid", strconv.Itoa(h.pid))
	if err != nil {
		return nil, err
	}
	want := h.cpu.Seconds() * 499
	return []figure{{"samples; the reference is CPU time × frequency", out.sum("count"), want, want / 20, "5 %: samples are taken by a timer"}}, nil
}

// cpuunclaimed compares the busy CPUs with the idle time of the CPUs, in units of 10 ms.
func cpuunclaimed(ctx context.Context, m *machine) ([]figure, error) {
	h, err := m.holdXZ(ctx)
	if err != nil {
		return nil, err
	}
	defer h.close()
	var idle, all float64
	out, err := m.observe(ctx, func() error {
		idleBefore, allBefore, err := cpuTimes()
		if err != nil {
			return err
		}
		if err := h.finish(); err != nil {
			return err
		}
		idle, all, err = cpuTimes()
		idle, all = idle-idleBefore, all-allBefore
		return err
	}, "cpuunclaimed", "3600")
	if err != nil {
		return nil, err
	}
	return []figure{{"% of CPU time not idle", out.sum("cpu_percent"), 100 - 100*idle/all, 5, "samples, and the time of the host"}}, nil
}

// cpuTimes returns the idle time and the whole time of all CPUs.
func cpuTimes() (idle, all float64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, fmt.Errorf("read counters: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, word := range strings.Fields(line)[1:] {
		n, _ := strconv.ParseFloat(word, 64)
		if i < 8 { // the time of guests is a part of others
			all += n
		}
		if i == 3 || i == 4 {
			idle += n
		}
	}
	return idle, all, nil
}

// runqlen compares the waiting tasks with the time that four processes on one CPU wait.
func runqlen(ctx context.Context, m *machine) ([]figure, error) {
	var waited time.Duration
	var begin, end time.Time
	out, err := m.observe(ctx, func() error {
		begin = time.Now()
		defer func() { end = time.Now() }()
		var all []*exec.Cmd
		for range 4 {
			cmd := exec.CommandContext(ctx, "taskset", "-c", "0", "sh", "-c", "i=0; while [ $i -lt 1500000 ]; do i=$((i+1)); done; cat /proc/$$/schedstat")
			cmd.Stdout = new(strings.Builder)
			if err := cmd.Start(); err != nil {
				return fmt.Errorf("start program: %w", err)
			}
			all = append(all, cmd)
		}
		for _, cmd := range all {
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("run program: %w", err)
			}
			var cpu, wait time.Duration
			if _, err := fmt.Sscan(fmt.Sprint(cmd.Stdout), &cpu, &wait); err != nil {
				return fmt.Errorf("%w: read schedstat: %w", errMissing, err)
			}
			waited += wait
		}
		return nil
	}, "runqlen", "-C")
	if err != nil {
		return nil, err
	}
	samples := 0.0
	for _, r := range out.rows {
		if key, _ := r["key"].(map[string]any); row(key).num("cpu") == 0 {
			samples += r.num("mean") * end.Sub(begin).Seconds()
		}
	}
	want := waited.Seconds()
	return []figure{{"seconds that tasks wait for the CPU; other tasks wait too, so the number is cut at the reference", min(samples, want), want, want / 10, "10 %: samples"}}, nil
}

// softirqslower shows all softirqs of at least 0 us.
func softirqslower(ctx context.Context, m *machine) ([]figure, error) {
	total := func() (n float64, err error) {
		text, err := os.ReadFile("/proc/softirqs")
		if err != nil {
			return 0, fmt.Errorf("read counters: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			for _, word := range strings.Fields(line)[1:] {
				c, _ := strconv.ParseFloat(word, 64)
				n += c
			}
		}
		return n, nil
	}
	file, err := m.large(ctx)
	if err != nil {
		return nil, err
	}
	var want float64
	out, err := m.observe(ctx, func() (err error) {
		want, err = around(total, func() error {
			_, err := output(ctx, "dd", "if="+file, "of=/dev/null", "bs=16k", "iflag=direct", "status=none")
			return err
		})
		return err
	}, "softirqslower", "0")
	if err != nil {
		return nil, err
	}
	return []figure{{"runs of softirqs", float64(len(out.where("stage", "run").rows)) + out.lost(), want, want/10 + 50, "10 % and 50: " + otherTasks}}, nil
}

// large writes a file that does not fit in small caches, and returns its path.
func (m *machine) large(ctx context.Context) (string, error) {
	file := m.path("large")
	if err := os.WriteFile(file, make([]byte, 120<<20), 0o644); err != nil {
		return "", fmt.Errorf("write file: %w", err)
	}
	_, err := output(ctx, "sync")
	return file, err
}

// counted compares the number of events with that of perf stat on all CPUs, while a disk is read.
func counted(tool, event, what string) func(context.Context, *machine) ([]figure, error) {
	return func(ctx context.Context, m *machine) ([]figure, error) {
		file, err := m.large(ctx)
		if err != nil {
			return nil, err
		}
		var want float64
		out, err := m.observe(ctx, func() error {
			var counts strings.Builder
			cmd := exec.CommandContext(ctx, "perf", "stat", "-a", "-x,", "-e", event, "--",
				"dd", "if="+file, "of=/dev/null", "bs=16k", "iflag=direct", "status=none")
			cmd.Stderr = &counts
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%w: perf stat: %w: %s", errMissing, err, counts.String())
			}
			number, _, _ := strings.Cut(counts.String(), ",")
			var err error
			if want, err = strconv.ParseFloat(number, 64); err != nil {
				return fmt.Errorf("%w: perf stat: %s", errMissing, counts.String())
			}
			return nil
		}, tool)
		if err != nil {
			return nil, err
		}
		if want == 0 {
			return nil, fmt.Errorf("%w: perf stat counts no %s", errMissing, event)
		}
		got := out.sum("count") + out.lost()
		return []figure{{what, got, want, want/10 + 50, "10 % and 50: " + otherTasks}}, nil
	}
}
