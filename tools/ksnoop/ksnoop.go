// Package ksnoop traces calls of kernel functions with their arguments and return values.
package ksnoop

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/fetch"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh ksnoop.bpf.c

type options struct {
	Functions functions `pos:"function..." help:"the word trace (default) or info, then functions: NAME or 'NAME(VALUE, ...)'"`
	Stack     bool      `flag:"stack,s" help:"only calls nested in the order of the functions, if they reach the last one"`
	Pages     int       `flag:"pages,P" min:"1" max:"65536" help:"size of the event buffer in pages per CPU, for compatibility with libbpf-tools"`
	Size      int       `flag:"string-size,Z" arg:"BYTES" min:"1" help:"number of bytes of a string that are read"`
	Debug     bool      `flag:"debug,d" help:"no effect, for compatibility with libbpf-tools: see --verbose"`
}

// functions are positional arguments. They are not split at commas.
type functions []string

// UnmarshalText appends a function.
func (f *functions) UnmarshalText(text []byte) error {
	*f = append(*f, string(text))
	return nil
}

type event struct {
	value.Task
	Target uint32
	CPU    uint32 `json:"cpu" col:"CPU,width=3,right" help:"CPU of the entry or return"`
}

type row struct {
	event
	Func   string       `json:"func" col:"FUNC,width=24" help:"kernel function"`
	Module string       `json:"module" col:"MODULE,width=12" help:"kernel module of the function; absent for the kernel itself"`
	Kind   string       `json:"at" col:"AT,width=6" help:"entry or return: where in the call the values were read"`
	Args   fetch.Values `json:"args" col:"ARGS,width=40" help:"values: at the entry arguments, at the return the return value (return); a value that could not be read is absent (? in text), the name of a truncated one is also in cut"`
	Call   call         `json:"call" col:"FUNCTION/ARGS,width=40,extra" help:"func, at and args as text"`

	set *fetch.Set
}

// call is the text of a row.
type call struct{ row *row }

// AppendText appends FUNCTION(ARGUMENTS), or FUNCTION() and the return value.
func (v *call) AppendText(b []byte) []byte {
	r := v.row
	if r == nil {
		return b
	}
	b = append(append(b, r.Func...), '(')
	if r.Kind == "return" {
		return r.Args.AppendText(append(b, ") "...))
	}
	return append(r.Args.AppendText(b), ')')
}

func (v *call) AppendJSON(b []byte) []byte { return value.AppendString(b, v.AppendText(nil)) }
func (v *call) Any() any                   { return string(v.AppendText(nil)) }
func (v *call) Schema() value.Schema       { return value.Schema{Type: "string"} }

// Decode decodes the values according to the attach point of the event.
func (r *row) Decode(tail []byte) error {
	if int(r.Target) >= len(r.set.Sites) || len(tail) < r.set.Size {
		return fmt.Errorf("unknown target %d, %d bytes", r.Target, len(tail))
	}
	site := &r.set.Sites[r.Target]
	r.Func, r.Module, r.Args, r.Call.row = site.Name, site.Module, site.Decode(tail[:r.set.Size]), r
	r.Kind = "entry"
	if site.Return {
		r.Kind = "return"
	}
	return nil
}

// Tool is the definition of ksnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "ksnoop",
	Category: "function",
	Summary:  "Trace kernel functions with arguments and return values, and print prototypes",
	Description: `Shows a row at the entry of each call of a kernel function, with its arguments, and one at its return, with the return value. ksnoop info prints the declarations of functions instead. Names and types come from the kernel's BTF, also for functions of modules.

A function can be followed by the values to show, in parentheses: arguments, their members (skb->sk->sk_family) and other expressions of trace(8); return is the return value. If none of them contains return, only entries are shown; if all do, only returns.

A value can be compared with a number: skb->len > 128. A call is then shown only if all comparisons are true: its return only if those of arguments are, and its entry only if that of the return value is. In the second case the entry is held back until the return, with its own time. Comparisons of arguments are made at the entry, others at the return.

With -s, calls are shown only if the functions call each other in the order of the command line, directly or through other functions. The entries are shown when the last function is called, with their own times, and the returns follow. Return values cannot be compared then. A function that calls itself counts once.

A thread can have 16 calls of these functions that have not returned; further ones are counted as lost (map_full). A return that the kernel missed is counted (unobserved) when a call around it returns. Calls that began before the start of the tool are not shown with comparisons and -s.`,
	Peers: []string{
		"A pointer to a struct is shown as an address; libbpf-tools prints the members of the struct. Name the members: 'ip_send_skb(skb->len)'. Members can be nested; libbpf-tools accepts one level.",
		"TIME is the time of day, and CLOCK_REALTIME in JSON; libbpf-tools prints CLOCK_MONOTONIC in ns.",
		"-v prints details of the run to standard error; the columns COMM and NAMESPACE that libbpf-tools adds are available with --columns +comm and in JSON. -d has no effect.",
		"-p selects the process; libbpf-tools also compares it with the process ID, but not in PID namespaces.",
		"info, trace and help are not abbreviated.",
	},
	Examples: []string{
		"ksnoop info tcp_sendmsg                            # prints the declaration",
		"ksnoop tcp_sendmsg                                 # arguments and return values of all calls",
		"ksnoop 'vfs_read(count, return)'                   # one argument, and the return value",
		"ksnoop 'tcp_sendmsg(size > 128, sk->sk_protocol)'  # only large messages",
		"ksnoop 'vfs_read(file, return < 0)'                # only calls that fail",
		"ksnoop -s tcp_sendmsg __tcp_transmit_skb ip_output # only calls nested in this order",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Size: 80}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	isInfo := false
	if len(o.Functions) > 0 {
		switch o.Functions[0] {
		case "help":
			return nil, flags.ErrHelp
		case "info", "trace":
			isInfo = o.Functions[0] == "info"
			o.Functions = o.Functions[1:]
		}
	}
	set := &fetch.Set{}
	e := &source.Events[row]{Columns: []string{"time", "cpu", "pid", "call"}, BufferBytes: 8 << 20, Row: row{set: set}}
	if o.Pages > 0 {
		e.BufferBytes = o.Pages * os.Getpagesize() * runtime.NumCPU()
	}
	if isInfo {
		e.Print = func(w io.Writer) error { return o.info(w, env) }
	}
	e.Resolve = func(p *tool.Plan, k *tool.Kernel) error {
		err := o.find(set, p, env, k, e.Tail())
		if errors.Is(err, tool.ErrUnsupported) {
			return err
		}
		return flags.Usage(err)
	}
	return e, nil
}

func (o *options) info(w io.Writer, env *tool.Env) error {
	if len(o.Functions) == 0 {
		return flags.Usage(target.ErrMissing)
	}
	var names []string
	for _, text := range o.Functions {
		f, err := parse(text, func(string) (*btf.FuncProto, error) { return &btf.FuncProto{Return: &btf.Void{}}, nil })
		if err != nil {
			return flags.Usage(err)
		}
		names = append(names, f.name)
	}
	err := target.Declare(w, names, env.KernelTypes)
	if errors.Is(err, btf.ErrNotFound) {
		return flags.Usage(err)
	}
	return err
}

// find resolves the functions to attach points, and sets the variables of the programs.
func (o *options) find(set *fetch.Set, p *tool.Plan, env *tool.Env, k *tool.Kernel, dataMax int) error {
	if len(o.Functions) == 0 {
		return target.ErrMissing
	}
	proto := func(name string) (*btf.FuncProto, error) {
		f, err := target.Function(name, env.KernelTypes)
		if err != nil {
			return nil, err
		}
		p, _ := f.Type.(*btf.FuncProto)
		return p, nil
	}
	finder := fetch.Finder{Finder: target.Finder{Note: p.Note}, TextSize: o.Size, DataMax: dataMax, ModuleTypes: k.ModuleTypes}
	var err error
	if finder.Types, err = k.Types(); err != nil {
		return err
	}
	var all []*function
	isTracked := o.Stack
	for _, text := range o.Functions {
		f, err := parse(text, proto)
		if err != nil {
			return err
		}
		if o.Stack && f.hasReturnCondition {
			return fmt.Errorf("%s: -s shows a call when the last function is called, so that return values cannot be compared", text)
		}
		all = append(all, f)
		isTracked = isTracked || f.entry != nil && f.hasReturnCondition || f.ret != nil && f.hasEntryCondition
	}
	s := sites{set: set, finder: &finder, isTracked: isTracked, inOrder: o.Stack}
	for i, f := range all {
		if err := s.add(uint8(i), f); err != nil {
			return err
		}
	}
	if len(all) > depthMax && o.Stack {
		return fmt.Errorf("%d functions: with -s at most %d are possible", len(all), depthMax)
	}
	p.Instances = set.Instances
	p.Variables = map[string]any{
		"trace_size": uint32(set.Size), "site_function": s.function, "site_shown": s.isShown, "hold_entries": s.isHeld,
		"track_calls": isTracked, "in_order": o.Stack, "last_function": uint8(len(all) - 1),
	}
	if !isTracked {
		p.Without = append(p.Without, "ended")
	}
	return nil
}

// The limits of the programs: SITES_MAX and DEPTH_MAX.
const sitesMax, depthMax = 256, 16

// sites are the attach points with what the programs know of them.
type sites struct {
	set                *fetch.Set
	finder             *fetch.Finder
	isTracked, inOrder bool

	// function has the number of the function of each; isShown and isHeld are 0 or 1.
	function, isShown, isHeld [sitesMax]uint8
}

// add finds the attach points of a function. If calls are tracked, each has both.
func (s *sites) add(number uint8, f *function) error {
	for _, isReturn := range []bool{true, false} {
		p, name := f.entry, f.name
		if isReturn {
			p, name = f.ret, "r:"+f.name
		}
		isShown := p != nil
		if !isShown && !s.isTracked {
			continue
		}
		if !isShown {
			var err error
			if p, err = fetch.Parse(name); err != nil {
				return err
			}
		}
		before := len(s.set.Sites)
		if err := s.finder.Add(s.set, p); err != nil {
			return err
		}
		if len(s.set.Sites) > sitesMax {
			return fmt.Errorf("more than %d entries and returns of functions", sitesMax)
		}
		for i := before; i < len(s.set.Sites); i++ {
			s.function[i], s.isShown[i], s.isHeld[i] = number, number01(isShown), number01(!isReturn && f.hasReturnCondition)
		}
	}
	return nil
}

func number01(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
