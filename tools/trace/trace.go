// Package trace traces functions, tracepoints and USDT probes with arguments.
package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/fetch"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh trace.bpf.c

type options struct {
	Probes      probes  `pos:"probe..." help:"probe with the expressions to show: 'do_sys_openat2(dfd, filename:str) if dfd == -100'; can be repeated"`
	Time        bool    `flag:"time,T" help:"show the time of day"`
	Timestamp   bool    `flag:"timestamp,t" help:"show the time since the start of the tool, in seconds"`
	Unix        bool    `flag:"unix-timestamp,u" help:"with -t: show the time since 1970 instead, in seconds"`
	PrintCPU    bool    `flag:"print-cpu,C" help:"show the CPU"`
	StringSize  int     `flag:"string-size,Z" arg:"BYTES" min:"1" help:"number of bytes of a string that are read"`
	IncludeSelf bool    `flag:"include-self,S" help:"include hits by this tool"`
	KernelStack bool    `flag:"kernel-stack,K" help:"show the kernel stack trace of each hit"`
	UserStack   bool    `flag:"user-stack,U" help:"show the user stack trace of each hit"`
	Info        bool    `flag:"info,i" help:"print the types of the functions from the kernel's BTF and exit"`
	Name        string  `flag:"name,n" arg:"TEXT" help:"only tasks whose name contains this text"`
	MsgFilter   string  `flag:"msg-filter,f" arg:"TEXT" help:"only rows whose ARGS contain this text, or a value that could not be read"`
	Aggregate   bool    `flag:"aggregate,A" help:"count equal rows, and show the numbers at the end"`
	Binary      bool    `flag:"bin-cmp,B" help:"STRCMP(\"{0x1, 0x2}\", value) compares the bytes that value points to with these"`
	Address     bool    `flag:"address,a" help:"no effect, for compatibility with BCC: stacks have addresses"`
	Files       string  `flag:"sym-file-list,s" arg:"FILES" help:"no effect, for compatibility with BCC: symbols are read from all files that a process has mapped"`
	Include     headers `flag:"include,I" arg:"HEADER" help:"no effect, for compatibility with BCC: types come from the kernel's BTF; can be repeated"`
	CgroupPath  string  `flag:"cgroup-path" arg:"PATH" sets:"cgroup" help:"same as --cgroup, for compatibility with BCC"`
	MaxEvents   uint64  `flag:"max-events" arg:"N" min:"1" sets:"limit" help:"same as --limit, for compatibility with BCC"`
	Pages       int     `flag:"buffer-pages,b" min:"1" max:"262144" help:"size of the event buffer in pages, for compatibility with BCC"`
	stacktrace.UserStacks
}

// probes are positional arguments. They are not split at commas, because a probe can contain them.
type probes []string

// headers are names of C headers. They are not read.
type headers []string

// UnmarshalText appends a name.
func (h *headers) UnmarshalText(text []byte) error {
	*h = append(*h, string(text))
	return nil
}

// String returns the default value.
func (h *headers) String() string { return "" }

// Check returns an error for flags that contradict each other.
func (o *options) Check() error {
	if o.Unix && !o.Timestamp {
		return errors.New("-u needs -t: it shows the time of -t since 1970")
	}
	return nil
}

// UnmarshalText appends a probe.
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
	source.Elapsed
	Epoch  value.Epoch  `json:"unix_time" col:"TIME(s),width=17,extra" help:"time of the hit since 1970 (CLOCK_REALTIME), in seconds; only with -u"`
	Func   string       `json:"func" col:"FUNC,width=16" help:"name of the function; of a tracepoint category/event"`
	Module string       `json:"module" col:"MODULE,width=20" help:"file of a user function, or module of a kernel function"`
	Args   fetch.Values `json:"args" col:"ARGS,width=40" help:"values of the expressions; a value that could not be read is absent (? in text), the name of a truncated one is also in cut"`

	KernelStack value.Stack `json:"kernel_stack" col:"KSTACK,extra,need=want_kernel_stack" help:"kernel stack trace, innermost frame first; text shows it below the row; symbolized with -K"`
	UserStack   value.Stack `json:"user_stack" col:"USTACK,extra,need=want_user_stack" help:"user stack trace, innermost frame first; text shows it below the row; in the first stacks of a process not selected by --pid, functions without frame pointers are missing; symbolized with -U"`

	// keepData is set if the row is used after the next event was decoded.
	keepData, kernelNames, userNames bool

	set   *fetch.Set
	env   *tool.Env
	addrs []uint64
}

// Decode decodes the values and stacks according to the attach point of the event.
func (r *row) Decode(tail []byte) error {
	if int(r.Target) >= len(r.set.Sites) {
		return fmt.Errorf("unknown target %d", r.Target)
	}
	if len(tail) < r.set.Size+int(r.KernelLen)+int(r.UserLen) {
		return fmt.Errorf("tail has only %d bytes", len(tail))
	}
	site := &r.set.Sites[r.Target]
	data := tail[:r.set.Size]
	if r.keepData {
		data = slices.Clone(data)
	}
	r.Func, r.Module, r.Args = site.Name, site.Module, site.Decode(data)
	if r.kernelNames || r.userNames {
		r.Args.Name(r.kernelName, r.userName)
	}
	r.Epoch.Of = &r.Time
	r.nameStacks(tail[r.set.Size:])
	return nil
}

// nameStacks symbolizes only the stacks that are present, because reading symbols is slow.
func (r *row) nameStacks(b []byte) {
	r.KernelStack, r.UserStack = r.KernelStack[:0], r.UserStack[:0]
	if r.keepData {
		r.KernelStack, r.UserStack = nil, nil
	}
	if r.KernelLen > 0 {
		r.KernelStack = r.env.KernelStack(r.KernelStack, r.addresses(b[:r.KernelLen]))
	}
	if r.UserLen > 0 {
		r.UserStack = r.env.UserStack(r.UserStack, b[r.KernelLen:][:r.UserLen])
	}
}

// kernelName returns the function that contains an address, as BCC's %K: with the offset.
func (r *row) kernelName(addr uint64) string {
	return r.symbol(addr, r.env.KernelStack(nil, []uint64{addr}))
}

func (r *row) userName(addr uint64) string {
	return r.symbol(addr, r.env.UserAddress(nil, r.PID, addr, uint64(r.Time)))
}

func (r *row) symbol(addr uint64, s value.Stack) string {
	if len(s) == 0 || s[0].Symbol == "" {
		return fmt.Sprintf("0x%x", addr)
	}
	name := s[0].Symbol
	if s[0].Offset != 0 {
		name = fmt.Sprintf("%s+0x%x", name, s[0].Offset)
	}
	if s[0].Module != "" && s[0].Module != "[kernel]" {
		name += " [" + path.Base(s[0].Module) + "]"
	}
	return name
}

func (r *row) addresses(b []byte) []uint64 {
	r.addrs = r.addrs[:0]
	for ; len(b) >= 8; b = b[8:] {
		r.addrs = append(r.addrs, binary.NativeEndian.Uint64(b))
	}
	return r.addrs
}

// Tool is the definition of trace.
var Tool = tool.Define(tool.Spec{
	Name:     "trace",
	Category: "function",
	Summary:  "Trace kernel and user functions, tracepoints and USDT, with arguments",
	Description: `Shows a row per hit of a probe, with the values of its expressions.

A probe is a kernel function (do_sys_openat2 or vfs_*), a function of a library or program (c:open, /usr/bin/bash:readline), the return of a function (r:vfs_read, r:c:malloc), a tracepoint (t:sched:sched_process_exec), or a USDT probe in a program (u:c:setjmp). The syntaxes of BCC, bpftrace and ksnoop are accepted.

` + target.Manual + `

` + tool.ReturnsManual + `

A probe is followed by the expressions to show, in parentheses. They have C syntax and use the arguments, by their names in the kernel's BTF or as arg1, arg2 and so on, or the fields of a tracepoint; at a return, retval is the return value. Expressions can follow pointers (skb->sk->sk_family), index arrays, cast, calculate in 64 bits, and use the kernel's enumerators and pid, tid (both in the initial PID namespace), uid, gid, comm, cpu, cgroup, ts and $task, the kernel's struct of the current task. ctx->dx is a register. Constants of the system call interface such as ENOENT and O_CREAT, and the kernel's allocation flags such as GFP_ATOMIC, are known too; another name is refused. A value of type char * or char[] is shown as a string. In a format, %K and %U show the function that contains an address in the kernel or in the process. The arguments of USDT probes are arg1 and so on, with the types of the probe. The suffix :str reads a string at any address, :x shows hexadecimal, :d a signed and :u an unsigned number.

An expression after the word if is a condition, and so is a comparison or another logical expression (!, &&, ||, STRCMP) that is alone in parentheses: a hit is shown only if the condition is true. A list with commas has values and never conditions: a condition in it is refused. To show the value of a comparison, write a > b:d. In user functions the probe waits for memory that is not resident, such as a page of a file that is not loaded yet (kernel 6.0 and later). Otherwise the value cannot be read: it is shown as ?, and a hit whose condition needs it is counted as lost (condition_unread). A condition that reads through a null pointer or divides by zero is false.

The tool itself compiles the expressions to BPF; neither a compiler nor kernel headers are needed. Arguments and return values of user functions have no types: to compare an int with a negative number, write (int)arg1. In a format, %d shows them as an int, %hd as a short and %ld in 64 bits, as in C.`,
	Peers: []string{
		"-K and -U always show addresses, so -a has no effect. Stacks, %K and %U are symbolized when they are read; if a process has exited by then, as far as its mappings are known. -s (BCC: files with symbols) and -I (BCC: C headers) have no effect.",
		"-A counts the rows with equal FUNC and ARGS (and stacks) and shows them at the end.",
		"-M (BCC: stop after this number of events) is --limit, -L is --tid, -c is --cgroup.",
		"Probes, signatures, conditions in parentheses and formats of BCC are accepted. Another expression that is alone in parentheses is a condition if a format follows that has no verb for it, or if it follows a signature: (retval) \"%x\", retval. Otherwise it is a value. Before a format, a list with commas has values too, and the format needs a verb for each.",
		"C and BPF functions in expressions are refused, except STRCMP, and so are types that are not in the kernel's BTF.",
		"$pid is the thread, as in BCC; pid, $tgid and $PID are the process.",
		"A function sys_NAME that the kernel lacks selects the functions of the system call, such as __x64_sys_NAME and, for 32-bit tasks, __ia32_compat_sys_NAME, where the kernel has them; arg1 and so on are the arguments of the call.",
		`The commands "trace" and "info" of ksnoop are accepted before functions; ksnoop(8) has its -s (only calls nested in a given order).`,
	},
	Overhead: "The BPF program takes 0.9 us for a hit with three values, one of them a string, including sending the event (300,000 hits, none lost). For user functions the trap into the kernel costs more than that; see funccount(8).",
	Examples: []string{
		"trace 'do_sys_openat2(dfd, filename) if dfd == -100'         # opens relative to the current directory",
		"trace 't:syscalls:sys_enter_openat(dfd, filename)'           # a tracepoint, where kprobes are unavailable",
		"trace 'r:c:malloc(retval) if retval == 0'                    # failed malloc calls",
		`trace 'p::vfs_read (arg3 > 20000) "read %d bytes", arg3'     # BCC syntax`,
		"trace -K -U 't:block:block_rq_issue'                         # disk I/O with stack traces",
		"trace --info tcp_sendmsg                                     # types of the arguments",
		"trace -M 10 't:sched:sched_process_exec(filename)'           # the first ten programs that start",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p", "tid": "L", "cgroup": "c", "limit": "M"},
}, options{StringSize: 80, UserStacks: stacktrace.DefaultUserStacks()}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	o.parseCommand()
	buffer := 8 << 20
	if o.Pages > 0 {
		buffer = o.Pages * 4096
	}
	set := &fetch.Set{}
	e := &source.Events[row]{
		Columns: o.columns(), Extra: o.stacks(), BufferBytes: buffer, Row: row{set: set, env: env},
	}
	parsed, err := o.parse()
	if err != nil {
		return nil, err
	}
	for _, p := range parsed {
		kernel, user := p.NeedsSymbols()
		e.Row.kernelNames, e.Row.userNames = e.Row.kernelNames || kernel, e.Row.userNames || user
	}
	if o.UserStack || e.Row.userNames {
		e.UserStacks = &o.UserStacks
	}
	e.Plan.Keep = o.keepCapabilities(o.KernelStack || e.Row.kernelNames, e.UserStacks != nil)
	if o.Aggregate {
		e.Count, e.Row.keepData = append([]string{"func", "args"}, o.stacks()...), true
	}
	if o.Info {
		e.Print = func(w io.Writer) error { return o.info(w, env) }
	}
	if o.Name != "" || o.MsgFilter != "" {
		e.Keep = o.keep
	}
	e.Resolve = func(p *tool.Plan, k *tool.Kernel) (err error) {
		if err := o.find(set, parsed, p, env, k, e.Tail()); err != nil {
			return flags.Usage(err)
		}
		p.Instances = set.Instances
		p.Variables = map[string]any{"trace_size": uint32(set.Size), "at_entry": !slices.ContainsFunc(set.Sites, isWithin)}
		if !o.IncludeSelf {
			p.Variables["trace_not_pid"], err = env.OwnPID()
		}
		return err
	}
	return e, nil
}

// isWithin reports whether the attach point is in user space, but not at the entry of a function.
func isWithin(s fetch.Site) bool {
	return s.Kind == target.USDT || s.Kind == target.User && s.Probe.Spec.Offset != 0
}

// keepCapabilities returns the capabilities needed to symbolize stacks.
func (o *options) keepCapabilities(kernel, user bool) []system.Capability {
	var keep []system.Capability
	if kernel {
		keep = append(keep, system.CapSyslog)
	}
	if user {
		keep = append(keep, tool.UserStackNeeds()...)
	}
	return keep
}

func (o *options) columns() []string {
	var cols []string
	if o.Time {
		cols = append(cols, "time")
	}
	switch {
	case o.Timestamp && o.Unix:
		cols = append(cols, "unix_time")
	case o.Timestamp:
		cols = append(cols, "elapsed_ns")
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

// keep applies the filters. A value that could not be read may contain the text of MsgFilter.
func (o *options) keep(r *row) bool {
	return strings.Contains(r.Comm.String(), o.Name) &&
		(r.Args.IsIncomplete() || strings.Contains(string(r.Args.AppendText(nil)), o.MsgFilter))
}

// parse parses the probes, except those of --info, which are names of functions.
func (o *options) parse() ([]*fetch.Probe, error) {
	var all []*fetch.Probe
	for _, text := range o.Probes {
		if o.Info {
			break
		}
		p, err := fetch.Parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// find resolves all probes to attach points. dataMax is the maximum size of the values in bytes.
func (o *options) find(set *fetch.Set, probes []*fetch.Probe, p *tool.Plan, env *tool.Env, k *tool.Kernel, dataMax int) error {
	if len(probes) == 0 {
		return errors.New("missing probe")
	}
	pids, err := env.Processes()
	if err != nil {
		return err
	}
	f := fetch.Finder{Finder: target.Finder{PIDs: pids, Note: p.Note}, TextSize: o.StringSize, DataMax: dataMax, Binary: o.Binary}
	// Types are optional: arguments by number and tracepoint fields also work without BTF.
	f.Types, _ = k.Types()
	f.ModuleTypes = k.ModuleTypes
	for _, p := range probes {
		if err := f.Add(set, p); err != nil {
			return err
		}
	}
	return nil
}
