// Package syscount counts system calls.
package syscount

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh syscount.bpf.c

type options struct {
	Every        flags.Duration `flag:"interval,i" pos:"interval" arg:"TIME" help:"time between reports, in seconds or as 500ms; without it there is one report, at the end"`
	Count        uint64         `pos:"count" help:"number of reports"`
	Top          uint64         `flag:"top,T" arg:"N" also:"rows" help:"show only the first N rows of each interval; text shows 10 without it"`
	Sort         string         `flag:"sort,s" arg:"COLUMN" help:"sort by this column, the greatest first (+COLUMN: the least), not by the count or the time"`
	Latency      bool           `flag:"latency,L" bpf:"want_latency" help:"measure how long the calls take"`
	Milliseconds bool           `flag:"milliseconds,m" help:"show the time in milliseconds, not microseconds"`
	Process      bool           `flag:"process,P" bpf:"by_pid" help:"a row for each process, not for each call"`
	Cgroups      bool           `flag:"cgroups" help:"a row for each cgroup, not for each call"`
	Containers   bool           `flag:"containers" help:"a row for each container, and one for what is in none, not for each call"`
	Syscalls     bool           `flag:"syscalls" help:"with these three: for each call as well"`
	Failures     bool           `flag:"failures,x" bpf:"targ_failed" help:"only calls that fail"`
	Errno        string         `flag:"errno,e" arg:"ERRNO" help:"only calls that fail with this error: ENOENT or 2"`
	PPID         uint32         `flag:"ppid" arg:"PID" bpf:"targ_ppid" help:"only children of this process"`
	Syscall      string         `flag:"syscall" arg:"NAME" help:"only this call"`
	Exec         string         `flag:"exec" arg:"COMMAND" help:"run this command, as a shell understands it, and count its calls until it ends; what it prints goes to standard error"`
	List         bool           `flag:"list,l" help:"list the names of all calls, and exit"`
}

// key is struct table_key.
type key struct {
	CgroupID uint64
	NR, ABI  uint32
	PID      uint32
	Comm     value.Comm
	_        uint32
}

// counts is struct table_value.
type counts struct{ Count, Errors, TotalNs uint64 }

type row struct {
	Syscall   string       `json:"syscall" col:"SYSCALL,width=22" help:"name of the call, or [N] for a number without one; absent where rows are not for calls"`
	ABI       string       `json:"abi" col:"ABI,width=6" help:"how the task calls: native, compat for a 32-bit task, x32; absent with the call"`
	PID       uint32       `json:"pid" col:"PID,width=7" help:"process that called, in the initial PID namespace; absent without --process"`
	Comm      value.Name   `json:"comm" col:"COMM,width=16" help:"name of the process (its first thread); absent without --process"`
	Cgroup    value.Name   `json:"cgroup" col:"CGROUP,width=40" help:"path of the cgroup that the task was in; absent without --cgroups"`
	Container value.Name   `json:"container" col:"CONTAINER,width=20" help:"name of the container by that cgroup, or its short id; absent without --containers, and for what is in none"`
	Count     uint64       `json:"count" col:"COUNT,width=10,right" help:"calls that returned in the interval"`
	Errors    uint64       `json:"errors" col:"ERRORS,width=10,right" help:"those of them that failed; one that a signal interrupts and that is begun anew fails too"`
	TotalNs   value.Micros `json:"total_ns" col:"TIME (us),width=14,right" help:"time from their entry (sys_enter) to their return (sys_exit), of all together, CLOCK_MONOTONIC; absent without --latency; text shows microseconds"`
	AverageNs value.Micros `json:"avg_ns" col:"AVG (us),width=12,right" help:"mean of that time, absent with it; text shows microseconds"`
	TotalMs   float64      `json:"total_ms" col:"TIME (ms),width=14,right,extra" help:"that time in milliseconds, absent with it"`
}

// Tool is syscount.
var Tool = tool.Define(tool.Spec{
	Name:     "syscount",
	Category: "process",
	Summary:  "Count system calls, and how long they take",
	Description: `Counts system calls as they return (raw_syscalls:sys_exit), of 64-bit and of 32-bit tasks, by call, or by process, cgroup or container.

Each call counts once, in the interval in which it returns. A call that makes a task returns twice, in the new task as well, and counts once. Calls that never return are not counted: exit, exit_group, and rt_sigreturn, whose return is that to the interrupted code.

With --latency the time is measured from sys_enter to sys_exit. Calls that were entered before that was attached have no time that is known: they are not in the table, but in the summary (no_entry).`,
	Peers: []string{
		"-c is --cgroup, as in libbpf-tools; BCC's -c is --ppid.",
		"clone, clone3, fork and vfork count once a call. libbpf-tools and BCC count them once more in the new task.",
		"32-bit tasks' calls have their own names; libbpf-tools and BCC name their numbers as if they were those of a 64-bit task.",
		"With -L a call counts that was entered while the tool was there, also with more than 10,240 tasks in calls.",
		"-T, --top limits text to 10 rows by itself; JSON and CSV have all rows.",
		"-i 0 is the same as none. --exec has the command in one word, --exec 'make -s all'; for BCC it is the rest of the line.",
	},
	Examples: []string{
		"syscount                        # calls of all, until it is stopped",
		"syscount -L -i 1                # the ten that took most time, each second",
		"syscount -P -e ENOENT           # processes that look for what is not there",
		"syscount --containers --syscalls -L --duration 10s  # by container and call",
		"syscount --exec 'tar cf /dev/null /etc'  # what a command calls",
		"syscount --syscall futex -P 5   # who waits for locks, every 5 seconds",
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
	return &tool.Table[key, counts, row]{
		Plan:     plan,
		Rounds:   tool.Rounds{Every: o.Every, Count: o.Count},
		Ranking:  tool.Ranking{Sort: o.sort(), Rows: o.Top},
		TextRows: 10,
		Columns:  o.columns(),
		Off:      o.off(),
		Label:    func(k *key, _ *counts) row { return o.label(k, names, env) },
		Fill:     fill,
	}, nil
}

func (o *options) bySyscall() bool {
	return o.Syscalls || !o.Process && !o.Cgroups && !o.Containers
}

func (o *options) plan(names *value.Syscalls) (tool.Plan, error) {
	p := tool.Plan{
		Variables:  map[string]any{"by_syscall": o.bySyscall(), "by_cgroup": o.Cgroups || o.Containers},
		MapEntries: map[string]uint32{"entries": system.PIDMax("/")},
		Exec:       o.Exec,
	}
	if !o.Latency {
		p.Without = []string{"enter"}
		p.MapEntries["entries"] = 1
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
	numbers, known := [3]int32{-1, -1, -1}, false
	for abi := range numbers {
		if nr, ok := names.Number(value.ABI(abi), o.Syscall); ok {
			numbers[abi], known = int32(nr), true
		}
	}
	if !known {
		return fmt.Errorf("--syscall: there is no %q (--list shows what there is)", o.Syscall)
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

// off are the columns that the options do not ask for.
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
