// Package tplist lists tracepoints, USDT probes and functions with their arguments.
package tplist

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

type options struct {
	Pattern   string      `pos:"pattern" help:"only names that match: * stands for any text, ? for a character"`
	PID       []uint32    `flag:"pid,p" arg:"PID" min:"1" id:"process" help:"USDT probes of the files that these processes have mapped (PID in the PID namespace of corescope)"`
	Lib       string      `flag:"lib,l" arg:"FILE" help:"USDT probes of this program or library: a path, or a name such as c"`
	Cgroup    string      `flag:"cgroup" arg:"PATH" help:"like --pid, for the processes in this cgroup or its descendants"`
	Container string      `flag:"container" arg:"NAME|ID" help:"like --pid, for the processes in this container"`
	Functions bool        `flag:"functions,f" help:"functions: of the kernel, or of the files that -l, -p, --cgroup or --container selects"`
	Raw       bool        `flag:"raw,r" help:"raw tracepoints from the kernel's BTF, with the arguments of the functions that the kernel calls"`
	Variables flags.Count `flag:"variables,v" help:"show arguments and fields; twice (-vv), also the places of a USDT probe or function"`
}

// Check returns an error for flags that contradict each other.
func (o *options) Check() error {
	if o.Raw && (o.Functions || o.inUser()) {
		return errors.New("--raw lists tracepoints of the kernel: it cannot be combined with -f, -l, -p, --cgroup and --container")
	}
	if n := btoi(len(o.PID) > 0) + btoi(o.Cgroup != "") + btoi(o.Container != ""); n > 1 {
		return errors.New("only one of --pid, --cgroup and --container can be given")
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (o *options) inUser() bool { return o.Lib != "" || o.byProcess() }

func (o *options) byProcess() bool { return len(o.PID) > 0 || o.Cgroup != "" || o.Container != "" }

type row struct {
	Time      value.Time  `json:"time" col:"TIME,width=8" help:"when the row was written, wall time"`
	Kind      string      `json:"kind" col:"KIND,width=14" help:"tracepoint, raw_tracepoint, usdt, function (of a program or library) or kernel_function"`
	File      value.Bytes `json:"file" col:"FILE,width=30" help:"program or library with the USDT probe or function: its path in the mount namespace of the process, or the path given with -l; absent for the kernel"`
	Module    string      `json:"module" col:"MODULE,width=12" help:"module of a kernel function or raw tracepoint; absent for the kernel itself and for tracepoints"`
	Name      value.Bytes `json:"name" col:"NAME,width=40" help:"name: category:event of a tracepoint, provider:probe of a USDT probe, function, with its version after @ if it has one"`
	Returns   string      `json:"returns" col:"RETURNS,width=16" help:"type of the return value of a kernel function, from the kernel's BTF; absent if unknown"`
	Args      arguments   `json:"args" col:"ARGS" help:"arguments in their order, or fields of the record of a tracepoint: name, type, and for a field its offset in the record in bytes; of a USDT probe, type and location of each argument at its first place. Absent for functions of programs, whose arguments are unknown, and for kernel functions that the BTF does not describe"`
	Semaphore value.Count `json:"semaphore" col:"SEMAPHORE,width=9,right" help:"file offset of the counter that enables a USDT probe, in bytes; absent if there is none"`
	Count     uint32      `json:"places" col:"PLACES,width=6,right" help:"number of places of a USDT probe or function: compilers duplicate code, and several functions can have the same name; 1 for a tracepoint"`
	Places    places      `json:"locations" col:"LOCATIONS" help:"these places in the file: file offset in bytes, and for a USDT probe the location of each argument as in the file (SIZE@LOCATION in the syntax of the assembler); absent for the kernel"`
}

// Stamp returns the time of the row.
func (r *row) Stamp() *value.Time { return &r.Time }

// Tool is the definition of tplist.
var Tool = tool.Define(tool.Spec{
	Name:     "tplist",
	Category: "function",
	Summary:  "List tracepoints, USDT probes and functions with their arguments",
	Description: `Lists what trace(8), argdist(8), funccount(8) and stackcount(8) can be attached to. Without flags these are the tracepoints of the kernel, with -l the USDT probes (user-space statically defined tracing, DTrace probes, SystemTap SDT) of a program or library, and with -p, --cgroup or --container those of all files that processes have mapped, also in containers and of deleted files. With -f it lists functions instead.

-v shows below each row the arguments, as the expressions of trace(8) use them: the fields of a tracepoint from tracefs, the parameters of a kernel function or raw tracepoint from the kernel's BTF, and the arguments of a USDT probe (arg1, arg2, ...) with their sizes. JSON always has them. Arguments of functions of programs are unknown: their files contain no types, except for debuggers.

The functions of the kernel are those that ftrace can trace, if tracefs lists them (available_filter_functions), otherwise all. Functions of a program are those in its symbol tables.

Raw tracepoints are the same events as tracepoints: BPF programs get the arguments that the kernel passes, instead of a record. Their list includes tracepoints without a record, which tracefs does not have, and needs no tracefs. They are listed instead of tracepoints if tracefs is not mounted or cannot be read.

There are no BPF programs. Only root, or a user with CAP_DAC_READ_SEARCH, can read tracefs. To read the mappings of processes of other users, CAP_SYS_PTRACE is needed, and CAP_CHECKPOINT_RESTORE for their deleted files.`,
	Peers: []string{
		"The pattern matches the whole name, or the part after the colon: sched_switch finds sched:sched_switch.",
		"With -p, BCC reads the files by their paths; tplist reads the mapped files, also if they are deleted or replaced.",
		"-f, --raw, --cgroup and --container, and JSON, do not exist in BCC. The common flag --verbose has no short form here, because -v shows arguments.",
	},
	Examples: []string{
		"tplist                               # all tracepoints",
		"tplist -v 'sched:sched_switch'       # the fields of a tracepoint",
		"tplist -l c                          # USDT probes of the C library",
		"tplist -p 181 '*gc*'                 # USDT probes of a process whose names contain gc",
		"tplist -f -v 'tcp_*msg'              # kernel functions and their arguments",
		"tplist -f -l /usr/bin/bash 'readline*' # functions of a program",
		"tplist --raw -v 'tcp*'               # raw tracepoints",
	},
	NoPrograms: true,
	Access:     "Tracepoints with their categories and fields need CAP_DAC_READ_SEARCH where only root can read tracefs, as is usual; without it the list has raw tracepoints. Processes of other users (--pid, --cgroup) need CAP_SYS_PTRACE. The rest needs no capability: functions of the kernel, raw tracepoints, and functions and USDT probes of files that the user can read.",
	Shorts:     map[string]string{"verbose": ""},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	l := &source.List[row]{Columns: o.columns()}
	l.RowNoun = o.noun()
	var all []row
	l.Resolve = func(p *tool.Plan, _ *tool.Kernel) (err error) {
		all, err = o.list(env, p.Note)
		return err
	}
	l.Each = func(show func() error) error {
		for i := range all {
			l.Row = all[i]
			if err := show(); err != nil {
				return err
			}
		}
		return nil
	}
	return l, nil
}

func (o *options) columns() []string {
	var cols []string
	if o.inUser() {
		cols = append(cols, "file")
	}
	cols = append(cols, "name")
	if o.Functions && !o.inUser() && o.Variables > 0 {
		cols = append(cols, "returns")
	}
	if o.Variables > 0 {
		cols = append(cols, "args")
	}
	if o.Variables > 1 && o.inUser() {
		cols = append(cols, "semaphore", "locations")
	}
	return cols
}

// noun returns what the run lists, for the message of a run without rows.
func (o *options) noun() string {
	noun := "tracepoint"
	switch {
	case o.Functions:
		noun = "function"
	case o.inUser():
		noun = "USDT probe"
	case o.Raw:
		noun = "raw tracepoint"
	}
	if o.Pattern != "" {
		noun += fmt.Sprintf(" that matches %q", o.Pattern)
	}
	if o.Lib != "" {
		noun += " in " + string(value.AppendEscaped(nil, o.Lib))
	}
	return noun
}

// list returns the rows, sorted by file and name.
func (o *options) list(env *tool.Env, note func(string)) ([]row, error) {
	f := &finder{Finder: target.Finder{PIDs: o.PID, Note: note}, env: env, modules: target.Modules}
	if o.Cgroup != "" || o.Container != "" {
		pids, err := env.ProcessesIn(o.Cgroup, o.Container)
		if err != nil {
			return nil, err
		}
		if len(pids) == 0 {
			return nil, errors.New("the cgroup has no processes")
		}
		f.PIDs = pids
	}
	rows, err := o.find(f)
	if errors.Is(err, target.ErrNotFound) || errors.Is(err, fs.ErrNotExist) && o.Lib != "" {
		return nil, flags.Usage(err)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(strings.Compare(string(a.File), string(b.File)), strings.Compare(string(a.Name), string(b.Name)), strings.Compare(a.Module, b.Module))
	})
	return rows, err
}

func (o *options) find(f *finder) ([]row, error) {
	pattern := cmp.Or(o.Pattern, "*")
	if o.Raw {
		return f.raw(pattern)
	}
	kind := target.Tracepoint
	switch {
	case o.Functions && o.inUser():
		kind = target.User
	case o.Functions:
		kind = target.Kernel
	case o.inUser():
		kind = target.USDT
	}
	all, err := f.List(target.Spec{Kind: kind, File: o.Lib, Name: pattern})
	if kind == target.Tracepoint && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)) {
		f.Note(fmt.Sprintf("the list has raw tracepoints instead, without categories (--raw): %v", err))
		return f.raw(pattern[strings.IndexByte(pattern, ':')+1:])
	}
	if err != nil {
		return nil, err
	}
	return f.rows(all)
}
