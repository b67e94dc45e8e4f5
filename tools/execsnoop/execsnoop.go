// Package execsnoop traces exec() system calls.
package execsnoop

import (
	"fmt"
	"regexp"
	"time"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh execsnoop.bpf.c

type options struct {
	Time      bool   `flag:"time,T" help:"show the time"`
	Timestamp bool   `flag:"timestamp,t" help:"show seconds since the start"`
	PrintUID  bool   `flag:"print-uid,U" help:"show the user ID"`
	PrintCPU  bool   `flag:"print-cpu,C" help:"show the CPU"`
	Parent    bool   `flag:"print-pcomm,M" help:"show the name of the parent"`
	Fails     bool   `flag:"fails,x" help:"include failed calls"`
	Quote     bool   `flag:"quote,q" help:"quote arguments"`
	Name      string `flag:"name,n" arg:"REGEXP" help:"only if the task name or an argument matches this regular expression, at any place"`
	Line      string `flag:"line,l" arg:"REGEXP" help:"only if the arguments, separated by spaces, match this regular expression, at any place"`
	PPID      uint32 `flag:"ppid,P" arg:"PID" min:"1" id:"process" bpf:"targ_ppid" help:"only children of this process"`
	MaxArgs   int    `flag:"max-args" min:"1" help:"show at most this number of arguments"`

	bufferBytes int
}

// Tool is the definition of execsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "execsnoop",
	Category: "process",
	Summary:  "Trace process execution: new programs (exec system calls) with their arguments",
	Description: `Shows each successful execve(2), execveat(2) and fexecve(3) of 64-bit and 32-bit tasks, called by any thread; with -x also failed calls.

A successful exec is traced at sched:sched_process_exec, in the new image, immediately after its arguments were written. Arguments are complete, up to 2 MiB. Name, user and executable are those of the new image. The BPF program keeps no state between events.

A failed exec is traced when the system call returns, by a program at raw_syscalls:sys_exit that is attached only with -x. Name and executable are those of the caller. Arguments are read from the memory of the caller, up to 255 of them, where an argument counts once per 4 KiB. Memory that the kernel has not read, because the file does not exist, may not be resident: args then ends before it, and args_truncated is true.

Text shows the command as given by the caller: the file and the arguments after argv[0]. In JSON, args is the argument vector of the new image. For a script they differ: args starts with the interpreter.`,
	Peers: []string{
		"-n and -l are regular expressions (RE2), as in BCC; in libbpf-tools they are texts. -n of libbpf-tools matches only the task name; here it also matches arguments, as their help says.",
		"--max-args is unlimited by default (libbpf-tools, BCC: 20 by default, at most 60, of 128 bytes each).",
		"--cgroupmap and --mntnsmap are those of BCC: they select by the keys of a pinned map. --cgroup and --container need no map.",
		"-u accepts user names, as in BCC, and numbers.",
		"Name, user and arguments of a successful exec are those of the new image; libbpf-tools reads the arguments before the call, from memory that may not be resident.",
		"execveat(2), fexecve(3), execs of threads other than the leader, and execs of 32-bit tasks are traced. The peers miss them, or leave entries in their map.",
		"Execs by the kernel itself (user mode helpers) are traced; libbpf-tools and BCC miss them.",
	},
	Examples: []string{
		"execsnoop                              # all new programs",
		"execsnoop -x --columns +error          # including failed calls, with the error",
		"execsnoop -P 1234 --columns +exe,cwd   # children of one process, with executable and directory",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"uid": "u", "cgroup": "c"},
}, options{bufferBytes: bufferBytes}, build)

// bufferBytes is enough for 30,000 execs of common size, or 60 with 128 KiB of arguments.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	plan := tool.Plan{MapEntries: map[string]uint32{}}
	if !o.Fails {
		plan.Without = []string{"fail"}
		plan.MapEntries["scratch"] = 1 // SCRATCH_EXEC
	}
	keep, err := o.keep()
	if err != nil {
		return nil, err
	}
	return &source.Events[row]{
		Plan:        plan,
		Columns:     columns(o),
		Headers:     map[string]string{"comm": "PCOMM"},
		Widths:      map[string]int{"pid": 6, "ppid": 6, "elapsed_ns": 8},
		BufferBytes: o.bufferBytes,
		Delay:       100 * time.Millisecond,
		Row:         row{maxArgs: o.MaxArgs, quote: o.Quote, pending: map[producer]parts{}},
		Keep:        keep,
	}, nil
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

// keep returns the filter for -n and -l, or nil without them.
func (o *options) keep() (func(*row) bool, error) {
	if o.Name == "" && o.Line == "" {
		return nil, nil
	}
	name, err := regexp.Compile(o.Name)
	if err != nil {
		return nil, fmt.Errorf("--name: %w", err)
	}
	line, err := regexp.Compile(o.Line)
	if err != nil {
		return nil, fmt.Errorf("--line: %w", err)
	}
	return func(r *row) bool { return r.named(name) && r.Command.matches(line) }, nil
}
