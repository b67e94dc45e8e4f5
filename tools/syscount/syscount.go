// Package syscount counts system calls.
package syscount

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh syscount.bpf.c

type options struct {
	Every        flags.Duration `flag:"interval,i" pos:"interval" arg:"TIME" zero:"none" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms" unset:"one report at the end by default, and for 0"`
	Count        uint64         `pos:"count" min:"1" help:"number of reports; unlimited by default"`
	Top          uint64         `flag:"top,T" arg:"N" also:"rows" min:"1" help:"show only the first N rows of each interval; default 10 in text"`
	Sort         string         `flag:"sort,s" arg:"COLUMN" help:"sort by this column, greatest first (+COLUMN: least first); default: count, with --latency total time"`
	Latency      bool           `flag:"latency,L" bpf:"want_latency" help:"measure the duration of calls"`
	Milliseconds bool           `flag:"milliseconds,m" help:"show the time in milliseconds instead of microseconds"`
	Process      bool           `flag:"process,P" bpf:"by_pid" help:"one row per process, instead of per system call"`
	Cgroups      bool           `flag:"cgroups" help:"one row per cgroup, instead of per system call"`
	Containers   bool           `flag:"containers" help:"one row per container, instead of per system call; one row for all tasks outside containers"`
	Syscalls     bool           `flag:"syscalls" help:"with --process, --cgroups or --containers: group by system call too"`
	Failures     bool           `flag:"failures,x" bpf:"targ_failed" help:"only calls that fail"`
	Errno        string         `flag:"errno,e" arg:"ERRNO" help:"only calls that fail with this error: ENOENT or 2"`
	PPID         uint32         `flag:"ppid" arg:"PID" min:"1" id:"process" bpf:"targ_ppid" help:"only children of this process"`
	Syscall      string         `flag:"syscall" arg:"NAME" help:"only this call"`
	Exec         string         `flag:"exec" arg:"COMMAND" help:"run this command, with a shell if it contains shell syntax, and count the calls of all its processes until it ends; its output goes to standard error"`
	List         bool           `flag:"list,l" help:"list the names of all calls, and exit"`
}

// key mirrors struct table_key.
type key struct {
	CgroupID uint64
	NR, ABI  uint32
	PID      uint32
	Comm     value.Comm
	_        uint32
}

// counts mirrors struct table_value.
type counts struct{ Count, Errors, TotalNs uint64 }

type row struct {
	Syscall   string       `json:"syscall" col:"SYSCALL,width=22" help:"name of the system call, or [N] for a number without a name; absent if rows are not grouped by system call"`
	ABI       string       `json:"abi" col:"ABI,width=6" help:"ABI of the call: native, compat (32-bit task) or x32; absent with syscall"`
	PID       uint32       `json:"pid" col:"PID,width=7" help:"calling process, in the initial PID namespace; absent without --process"`
	Comm      value.Name   `json:"comm" col:"COMM,width=16" help:"name of the process (its thread-group leader); absent without --process"`
	Cgroup    value.Name   `json:"cgroup" col:"CGROUP,width=40" help:"path of the task's cgroup; absent without --cgroups"`
	Container value.Name   `json:"container" col:"CONTAINER,width=20" help:"name of the container of that cgroup, or its short ID; absent without --containers and outside containers"`
	Count     uint64       `json:"count" col:"COUNT,width=10,right" help:"calls that returned in the interval"`
	Errors    uint64       `json:"errors" col:"ERRORS,width=10,right" help:"calls that failed, including calls that a signal interrupts and that are restarted"`
	TotalNs   value.Micros `json:"total_ns" col:"TIME (us),width=14,right" help:"sum of the times from entry (sys_enter) to return (sys_exit), CLOCK_MONOTONIC; absent without --latency; text shows microseconds"`
	AverageNs value.Micros `json:"avg_ns" col:"AVG (us),width=12,right" help:"mean time per call; absent without --latency; text shows microseconds"`
	TotalMs   float64      `json:"total_ms" col:"TIME (ms),width=14,right,extra" help:"total_ns in milliseconds; absent without --latency"`
}

// Tool is the definition of syscount.
var Tool = tool.Define(tool.Spec{
	Name:     "syscount",
	Category: "process",
	Summary:  "Count system calls (syscalls), their errors and latency",
	Description: `Counts system calls when they return (raw_syscalls:sys_exit), of 64-bit and 32-bit tasks, by system call, process, cgroup or container.

Each call counts once, in the interval in which it returns. A call that creates a task returns a second time in the new task, but counts once. Calls that never return are not counted: exit, exit_group, and rt_sigreturn (sigreturn of 32-bit tasks), with which a signal handler ends: it continues the interrupted code, and no return of a call has its number. strace(1) lists these calls, because it shows calls at their entry.

A successful execve or execveat is counted by the name and ABI of the call that the task made. The registers at its return do not contain them, so they are recorded before the exec replaces them (begin_new_exec, or raw_syscalls:sys_enter with --latency and on kernels where a program cannot be attached there) if rows or --syscall need them. If that was not observed, the call is counted as execve, and by exec_without_entry in the summary.

With --exec, the calls of the command and of all its descendants are counted, including descendants whose parent has exited, and the shell that runs the command if it contains shell syntax. A descendant that could not be tracked is counted as lost (map_full). The run ends with the command; if the command fails, the run fails too. Processes that are still running when the command ends are reported.

With --latency the time is measured from sys_enter to sys_exit. Calls that were entered before the tool was attached have no known time. They are not in the table, but in the summary (no_entry). So are calls whose entry was missed later, which are lost too (unobserved), and those that a seccomp filter denies, whose entry the kernel does not report.`,
	Peers: []string{
		"-c is --cgroup, as in libbpf-tools; -c of BCC is --ppid.",
		"clone, clone3, fork and vfork count once per call. libbpf-tools and BCC count them once more in the new task.",
		"System calls of 32-bit tasks have the right names; libbpf-tools and BCC interpret their numbers as 64-bit system calls.",
		"-L counts all calls entered while the tool is attached, even if more than 10,240 tasks are in calls at once.",
		"-T, --top defaults to 10 rows in text; JSON and CSV have all rows.",
		"--exec takes the command as one argument, such as --exec 'make -s all'; BCC uses the rest of the command line.",
	},
	Examples: []string{
		"syscount                        # all system calls, until Ctrl-C",
		"syscount -L -i 1                # the ten system calls with the most time, each second",
		"syscount -P -e ENOENT           # processes whose calls fail with ENOENT",
		"syscount --containers --syscalls -L --duration 10s  # by container and call",
		"syscount --exec 'make -s all'   # system calls of a command and its children",
		"syscount --syscall futex -P 5   # processes that wait for locks (futex), every 5 seconds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "cgroup": "c", "duration": "d"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	names := value.NewSyscalls()
	plan, err := o.plan(names)
	if err != nil {
		return nil, err
	}
	plan.Draws = true
	t := &source.Table[key, counts, row]{
		Plan:     plan,
		Rounds:   source.Rounds{Every: o.Every, Count: o.Count},
		Ranking:  source.Ranking{Sort: o.sort(), Rows: o.Top},
		TextRows: 10,
		Columns:  o.columns(),
		Off:      o.off(),
		Label:    func(k *key, _ *counts) row { return o.label(k, names, env) },
		Fill:     fill,
	}
	if !o.Process && !o.Cgroups && !o.Containers {
		t.MaxKeys = 4096 // several times the number of calls of all ABIs
		t.Index = source.IndexWith(func(i uint32) key { return key{NR: i} })
	}
	return t, nil
}

func (o *options) bySyscall() bool {
	return o.Syscalls || !o.Process && !o.Cgroups && !o.Containers
}

// wantsExecCall reports whether the name of successful exec calls is needed, which requires a program
// before the exec.
func (o *options) wantsExecCall() bool { return o.bySyscall() || o.Syscall != "" }

func (o *options) plan(names *value.Syscalls) (tool.Plan, error) {
	p := tool.Plan{
		Variables: map[string]any{
			"by_syscall": o.bySyscall(), "by_cgroup": o.Cgroups || o.Containers, "want_exec_call": o.wantsExecCall(),
		},
		MapEntries: map[string]uint32{"entries": system.PIDMax("/")},
		Exec:       o.Exec,
	}
	if !o.Latency {
		p.MapEntries["entries"] = 1
	}
	if !o.Latency {
		p.Without = append(p.Without, "enter")
	}
	if o.Latency || !o.wantsExecCall() {
		p.Without = append(p.Without, "exec")
	}
	if o.List {
		p.Print = func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Join(names.All(), "\n")+"\n")
			return err
		}
	}
	if o.Errno != "" {
		errno, err := value.ParseErrno(o.Errno)
		if err != nil {
			return p, fmt.Errorf("--errno: %w", err)
		}
		p.Variables["targ_errno"] = errno
	}
	return p, o.addSyscall(&p, names)
}

func (o *options) addSyscall(p *tool.Plan, names *value.Syscalls) error {
	if o.Syscall == "" {
		return nil
	}
	numbers, exists := [3]int32{-1, -1, -1}, false
	for abi := range numbers {
		if nr, ok := names.Number(value.ABI(abi), o.Syscall); ok {
			numbers[abi], exists = int32(nr), true
		}
	}
	if !exists {
		return fmt.Errorf("--syscall: unknown system call %q (--list prints all names)", o.Syscall)
	}
	p.Variables["targ_by_syscall"], p.Variables["targ_syscall"] = true, numbers
	return nil
}

func (o *options) sort() string {
	switch {
	case o.Sort != "":
		return o.Sort
	case o.Latency:
		return "total_ns"
	}
	return "count"
}

func (o *options) columns() []string {
	var keys []string
	for _, c := range []struct {
		wanted bool
		key    string
	}{
		{o.Containers, "container"}, {o.Cgroups, "cgroup"}, {o.Process, "pid"}, {o.Process, "comm"},
		{o.bySyscall(), "syscall"}, {true, "count"}, {o.Latency && !o.Milliseconds, "total_ns"},
		{o.Latency && o.Milliseconds, "total_ms"},
	} {
		if c.wanted {
			keys = append(keys, c.key)
		}
	}
	return keys
}

// off returns the columns that are absent with these options.
func (o *options) off() []string {
	var keys []string
	if !o.bySyscall() {
		keys = append(keys, "syscall", "abi")
	}
	if !o.Process {
		keys = append(keys, "pid", "comm")
	}
	if !o.Latency {
		keys = append(keys, "total_ns", "avg_ns", "total_ms")
	}
	if !o.Cgroups {
		keys = append(keys, "cgroup")
	}
	if !o.Containers {
		keys = append(keys, "container")
	}
	return keys
}

func (o *options) label(k *key, names *value.Syscalls, env *tool.Env) row {
	r := row{PID: k.PID, Comm: value.NameOf(k.Comm[:])}
	if o.bySyscall() {
		r.Syscall = names.Name(value.ABI(k.ABI), k.NR)
		r.ABI = [...]string{"native", "compat", "x32"}[k.ABI%3]
	}
	if o.Cgroups {
		r.Cgroup = value.Name(env.CgroupPath(k.CgroupID))
	}
	if o.Containers {
		r.Container = value.Name(env.Owner(k.CgroupID).Name())
	}
	return r
}

func fill(r *row, c *counts, _ time.Duration) {
	r.Count, r.Errors, r.TotalNs = c.Count, c.Errors, value.Micros(c.TotalNs)
	r.TotalMs = float64(c.TotalNs) / 1e6
	if c.Count > 0 {
		r.AverageNs = value.Micros(c.TotalNs / c.Count)
	}
}
