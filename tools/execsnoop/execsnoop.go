// Package execsnoop shows the programs that are executed.
package execsnoop

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh execsnoop.bpf.c

type options struct {
	Time      bool   `flag:"time,T" help:"show the time"`
	Timestamp bool   `flag:"timestamp,t" help:"show the seconds since the start"`
	PrintUID  bool   `flag:"print-uid,U" help:"show the user id"`
	PrintCPU  bool   `flag:"print-cpu,C" help:"show the CPU"`
	Parent    bool   `flag:"print-pcomm,M" help:"show the parent's name"`
	Fails     bool   `flag:"fails,x" help:"also show calls that failed"`
	Quote     bool   `flag:"quote,q" help:"put quotation marks around arguments"`
	Name      string `flag:"name,n" help:"only where the task's name or an argument contains this"`
	Line      string `flag:"line,l" help:"only where the arguments, with blanks between them, contain this"`
	PPID      uint32 `flag:"ppid,P" arg:"PID" bpf:"targ_ppid" help:"only children of this process"`
	MaxArgs   int    `flag:"max-args" help:"cut behind so many arguments"`

	bufferBytes int
}

// Tool is execsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "execsnoop",
	Category: "process",
	Summary:  "Show the programs that are executed",
	Description: `Shows each execve(2), execveat(2) and fexecve(3) that succeeds, of 64-bit and of 32-bit tasks, from whatever thread; with -x also those that fail.

A success is seen at sched:sched_process_exec, in the new image, when its arguments have just been written: they are read whole, up to 2 MiB. The name, the user and the executable are the new ones. Nothing is kept from one event to another in the kernel.

A failure is seen as the system call returns, by a program at raw_syscalls:sys_exit that is there with -x only. The name and the executable are the caller's. Arguments are read from the caller's memory, 255 of them at most, where each 4 KiB of one count. Memory that the kernel itself has not looked at, as it found no file, may not be resident: then args ends before it and args_truncated is true.

Text shows the command as it was given: the file, and the arguments behind the first. In JSON, args is the new image's argument vector. Of a script these differ: args begins with the interpreter.`,
	Peers: []string{
		"-n and -l take a substring, as libbpf-tools' do; BCC's take a regular expression: --filter 'comm matches \"^(ba|da)?sh$\"', --filter 'any(args, # matches \"x$\")'. libbpf-tools' look at the task's name only, ours also at the arguments, as their help says.",
		"--max-args (libbpf-tools, BCC: 20 by default and 60 at most, 128 bytes each) has no limit by default.",
		"--cgroupmap and --mntnsmap (BCC: ids in a pinned map) are --cgroup and --container.",
		"-u takes names, as BCC's does, and numbers.",
		"A success has the name, user and arguments that the new image has, where libbpf-tools reads the arguments before the call, from memory that may be missing.",
		"execveat(2), fexecve(3), execs of threads that are not the first, and those of 32-bit tasks, which the peers do not see or leave in their map, are rows here.",
		"libbpf-tools and BCC see no execs by the kernel itself (user mode helpers); here they are rows.",
	},
	Examples: []string{
		"execsnoop                              # every program that is executed",
		"execsnoop -x --columns +error          # also those that could not be, and why",
		"execsnoop -P 1234 --columns +exe,cwd   # children of one process, and where they run",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"uid": "u", "cgroup": "c"},
}, options{bufferBytes: bufferBytes}, build)

// bufferBytes holds 30,000 execs of common size, or 60 with 128 KiB of arguments.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	if o.MaxArgs < 0 {
		return nil, errors.New("--max-args is negative")
	}
	start, err := bootNow()
	if err != nil {
		return nil, err
	}
	plan := tool.Plan{MapEntries: map[string]uint32{}}
	if !o.Fails {
		plan.Without = []string{"fail"}
		plan.MapEntries["scratch"] = 1 // SCRATCH_EXEC
	}
	return &tool.Events[row]{
		Plan:        plan,
		Columns:     columns(o),
		Headers:     map[string]string{"comm": "PCOMM"},
		Widths:      map[string]int{"pid": 6, "ppid": 6},
		BufferBytes: o.bufferBytes,
		Row:         row{start: start, maxArgs: o.MaxArgs, quote: o.Quote, pending: map[source]parts{}},
		Keep:        o.keep(),
	}, nil
}

func bootNow() (value.Time, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read boot clock: %w", err)
	}
	return value.Time(ts.Nano()), nil
}

func columns(o *options) []string {
	var cols []string
	for _, c := range []struct {
		shown bool
		key   string
	}{
		{o.Time, "time"}, {o.Timestamp, "elapsed_ns"}, {o.PrintUID, "uid"}, {o.PrintCPU, "cpu"}, {o.Parent, "parent_comm"},
		{true, "comm"}, {true, "pid"}, {true, "ppid"}, {true, "ret"}, {true, "command"},
	} {
		if c.shown {
			cols = append(cols, c.key)
		}
	}
	return cols
}

// keep is -n and -l, or nil.
func (o *options) keep() func(*row) bool {
	if o.Name == "" && o.Line == "" {
		return nil
	}
	return func(r *row) bool {
		return (o.Name == "" || r.named(o.Name)) && (o.Line == "" || r.Command.contains(o.Line))
	}
}
