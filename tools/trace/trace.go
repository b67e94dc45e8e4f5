// Package trace shows each hit of probes of the user's choice, with arguments.
package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/fetch"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh trace.bpf.c

type options struct {
	Probes      probes `pos:"probe..." help:"a probe, with what to show of it: 'do_sys_openat2(dfd, filename:str) if dfd == -100'; there may be several"`
	Timestamp   bool   `flag:"timestamp,t" also:"time" help:"show the time"`
	PrintCPU    bool   `flag:"print-cpu,C" help:"show the CPU"`
	StringSize  int    `flag:"string-size,Z" help:"bytes of a string that are fetched"`
	IncludeSelf bool   `flag:"include-self,S" help:"also hits by this tool itself"`
	KernelStack bool   `flag:"kernel-stack,K" help:"show the functions of the kernel that led to the hit"`
	UserStack   bool   `flag:"user-stack,U" help:"show the functions of the process that led to the hit"`
	Info        bool   `flag:"info,i" help:"do not trace, but show the functions' types, as the kernel's BTF has them"`
	Name        string `flag:"name,n" arg:"TEXT" help:"only tasks whose name contains this"`
	MsgFilter   string `flag:"msg-filter,f" arg:"TEXT" help:"only rows whose ARGS contain this"`
	Pages       int    `flag:"buffer-pages,b" help:"size of the event buffer in pages, for BCC's sake"`
	tool.UserStacks
}

// probes are positional arguments, each of which may have commas.
type probes []string

// UnmarshalText adds one.
func (p *probes) UnmarshalText(text []byte) error {
	*p = append(*p, string(text))
	return nil
}

type event struct {
	value.Task
	Target    uint32
	CPU       uint32 `json:"cpu" col:"CPU,width=3,right" help:"CPU of the hit"`
	KernelLen uint32
	UserLen   uint32
}

type row struct {
	event
	Func   string       `json:"func" col:"FUNC,width=16" help:"name of the function, or of the tracepoint as category/event"`
	Module string       `json:"module" col:"MODULE,width=20" help:"file of a user function; module of a kernel function that is in one"`
	Args   fetch.Values `json:"args" col:"ARGS,width=40" help:"the values that the probe asks for, by the expressions; one that could not be read is absent (? in text), one that was cut is also named in cut"`

	KernelStack value.Stack `json:"kernel_stack" col:"KSTACK,extra,need=want_kernel_stack" help:"functions of the kernel that were being run, the innermost first; text shows them below the row; named with -K"`
	UserStack   value.Stack `json:"user_stack" col:"USTACK,extra,need=want_user_stack" help:"functions of the process, likewise; of a process that is not asked for by --pid, those that keep no frame pointers are missing in its first stacks; named with -U"`

	set   *fetch.Set
	env   *tool.Env
	addrs []uint64
}

// Decode finds the site, which knows what the tail is.
func (r *row) Decode(tail []byte) error {
	if int(r.Target) >= len(r.set.Sites) {
		return fmt.Errorf("there is no target %d", r.Target)
	}
	if len(tail) < r.set.Size+int(r.KernelLen)+int(r.UserLen) {
		return fmt.Errorf("%d bytes are too few", len(tail))
	}
	site := &r.set.Sites[r.Target]
	r.Func, r.Module, r.Args = site.Name, site.Module, site.Decode(tail[:r.set.Size])
	r.nameStacks(tail[r.set.Size:])
	return nil
}

// nameStacks names those that there are, as symbols take a while to be read.
func (r *row) nameStacks(b []byte) {
	r.KernelStack, r.UserStack = r.KernelStack[:0], r.UserStack[:0]
	if r.KernelLen > 0 {
		r.KernelStack = r.env.KernelStack(r.KernelStack, r.addresses(b[:r.KernelLen]))
	}
	if r.UserLen > 0 {
		r.UserStack = r.env.UserStack(r.UserStack, b[r.KernelLen:][:r.UserLen])
	}
}

func (r *row) addresses(b []byte) []uint64 {
	r.addrs = r.addrs[:0]
	for ; len(b) >= 8; b = b[8:] {
		r.addrs = append(r.addrs, binary.NativeEndian.Uint64(b))
	}
	return r.addrs
}

// Tool is trace.
var Tool = tool.Define(tool.Spec{
	Name:     "trace",
	Category: "function",
	Summary:  "Show each hit of functions and tracepoints of your choice, with arguments",
	Description: `Shows a row for each hit of the probes, with the values that they ask for.

A probe is a kernel function (do_sys_openat2 or vfs_*), a function of a library or program (c:open, /usr/bin/bash:readline), either of these when it returns (r:vfs_read, r:c:malloc), a tracepoint (t:sched:sched_process_exec), or a probe that a program has built in (u:c:setjmp, USDT). The spellings of BCC, bpftrace and ksnoop are understood.

Behind it, in parentheses, stands what to show: expressions as in C over the arguments, by their names in the kernel's BTF or as arg1, arg2 and so on, or over a tracepoint's fields. A return has retval. They may follow pointers (skb->sk->sk_family), take elements, cast, calculate in 64 bits, and name the kernel's enumerators and pid, tid, uid, gid, comm, cpu, cgroup and ts. A value of type char * or char[] is shown as a string; :str makes a string of any address, :x shows hexadecimal, :d and :u a number with and without sign.

A comparison in the parentheses is a condition, and so is what follows the word if: the probe's hit is shown only if it is true. Memory that cannot be read, as a page of a file that is not loaded yet, has no value: it is shown as ?, and a condition that needs it is false.

All this is compiled to BPF by the tool itself; neither a compiler nor kernel headers are needed. Arguments of user functions have no types: say (int)arg1 where an int is compared with a negative number.`,
	Peers: []string{
		"-t shows the time of day, where BCC's shows seconds since the start; -T and -u are not there, as --time is -t's other name and JSON has full times.",
		"-K and -U show addresses too, as BCC's -a does. Stacks are named as they are read, a process that has ended by then as far as it is known; BCC's -s (files of symbols) is not needed.",
		"-A (BCC: aggregate) is argdist. -B is not there: write comparisons. -I (BCC: C headers) is not needed, as types come from the kernel's BTF.",
		"-M (BCC: end after so many events) is --limit, -L --tid, -c --cgroup.",
		"BCC's probes, conditions in parentheses and formats are understood. What needs a C compiler is not: functions of C or BPF in expressions, and types of headers that the kernel's BTF does not have.",
		"The arguments of USDT probes cannot be shown yet.",
		"ksnoop's words \"trace\" and \"info\" before its functions are understood; its -s (only calls that are nested in a given order) is not there: -K shows how a call came to be.",
	},
	Overhead: "A hit with three values, one of them a string, takes 0.9 us in the program, sending included (300,000 hits, none lost). The trap to a user function is more than that, see funccount(8).",
	Examples: []string{
		`trace 'do_sys_openat2(dfd, filename) if dfd == -100'         # what is opened, relative to the current directory`,
		`trace 't:syscalls:sys_enter_openat(dfd, filename)'           # the same where there are no kprobes`,
		`trace 'r:c:malloc(retval) if retval == 0'                    # mallocs that fail`,
		`trace 'p::vfs_read (arg3 > 20000) "read %d bytes", arg3'     # as BCC writes it`,
		`trace -K -U 't:block:block_rq_issue'                         # who asks the disk, and how it came to that`,
		`trace --info tcp_sendmsg                                     # the types of its arguments`,
		`trace -M 10 't:sched:sched_process_exec(filename)'           # the first ten programs that start`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "L", "cgroup": "c", "limit": "M"},
}, options{StringSize: 80, UserStacks: tool.DefaultUserStacks()}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	o.takeWord()
	if o.StringSize < 1 {
		return nil, errors.New("-Z is 1 at least")
	}
	buffer := 8 << 20
	if o.Pages > 0 {
		buffer = o.Pages * 4096
	}
	set := &fetch.Set{}
	e := &tool.Events[row]{
		Plan:    tool.Plan{Keep: o.keepCapabilities()},
		Columns: o.columns(), Extra: o.stacks(), BufferBytes: buffer, Row: row{set: set, env: env},
	}
	if o.UserStack {
		e.UserStacks = &o.UserStacks
	}
	if o.Info {
		e.Print = func(w io.Writer) error { return o.info(w, env) }
	}
	if o.Name != "" || o.MsgFilter != "" {
		e.Keep = o.keep
	}
	e.Resolve = func(p *tool.Plan, k *tool.Kernel) error {
		if err := o.find(set, k); err != nil {
			return flags.Usage(err)
		}
		p.Instances = set.Instances
		p.Variables = map[string]any{"trace_size": uint32(set.Size), "at_entry": !slices.ContainsFunc(set.Sites, isWithin)}
		if !o.IncludeSelf {
			p.Variables["trace_not_pid"] = uint32(os.Getpid())
		}
		return nil
	}
	return e, nil
}

// isWithin tells of a place in user space that is no function's begin.
func isWithin(s fetch.Site) bool {
	return s.Kind == target.USDT || s.Kind == target.User && s.Probe.Spec.Offset != 0
}

// keepCapabilities are those that it takes to name the functions of stacks.
func (o *options) keepCapabilities() []system.Capability {
	var keep []system.Capability
	if o.KernelStack {
		keep = append(keep, system.CapSyslog)
	}
	if o.UserStack {
		keep = append(keep, tool.UserStackNeeds()...)
	}
	return keep
}

func (o *options) columns() []string {
	var cols []string
	if o.Timestamp {
		cols = append(cols, "time")
	}
	if o.PrintCPU {
		cols = append(cols, "cpu")
	}
	return append(append(cols, "pid", "tid", "comm", "func", "args"), o.stacks()...)
}

func (o *options) stacks() []string {
	var cols []string
	if o.KernelStack {
		cols = append(cols, "kernel_stack")
	}
	if o.UserStack {
		cols = append(cols, "user_stack")
	}
	return cols
}

func (o *options) keep(r *row) bool {
	return strings.Contains(r.Comm.String(), o.Name) && strings.Contains(string(r.Args.AppendText(nil)), o.MsgFilter)
}

// find finds the places of all probes.
func (o *options) find(set *fetch.Set, k *tool.Kernel) error {
	if len(o.Probes) == 0 {
		return errors.New("there is no probe")
	}
	f := fetch.Finder{TextSize: o.StringSize, Room: fetch.DataMax}
	// Without BTF there are still arguments by number, and fields of tracepoints.
	f.Types, _ = k.Types()
	for _, text := range o.Probes {
		p, err := fetch.Parse(text)
		if err != nil {
			return err
		}
		if err := f.Add(set, p); err != nil {
			return err
		}
	}
	return nil
}
