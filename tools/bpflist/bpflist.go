// Package bpflist lists BPF programs, maps and links.
package bpflist

import (
	"errors"
	"fmt"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh bpflist.bpf.c -type kind

type options struct {
	Programs  bool        `flag:"programs,P" help:"list programs; can be combined with --maps and --links"`
	Maps      bool        `flag:"maps,M" help:"list maps"`
	Links     bool        `flag:"links,L" help:"list links, which keep programs attached"`
	Verbosity flags.Count `flag:"verbosity,v" also:"count" help:"instead, count for each process its programs, maps, links and probes; twice (-vv), each probe with its name"`
}

// Check returns an error for flags that contradict each other.
func (o *options) Check() error {
	if o.Verbosity > 0 && (o.Programs || o.Maps || o.Links) {
		return errors.New("--verbosity counts all kinds: it cannot be combined with --programs, --maps and --links; use --filter")
	}
	return nil
}

// counts mirrors struct prog_counts in prog.bpf.h.
type counts struct{ Runs, RunNs, Misses uint64 }

type event struct {
	value.Task
	LoadNs   uint64
	Counts   counts
	ID       uint32 `json:"id" col:"ID,width=6" help:"ID of the object, unique per kind, as in bpftool"`
	KindNr   uint32 `btf:"kind"`
	TypeNr   uint32 `btf:"type"`
	ProgID   uint32
	OwnerUID uint32
	FDNr     uint32 `btf:"fd"`
	Holders  uint32 `json:"holders" col:"HOLD,width=4,right" help:"open file descriptors of the object in all processes; an object with none is held by another BPF object, a pin in a file system, or its attachment"`
	InsnsNr  uint32 `btf:"insns"`
	JITedNr  uint32 `btf:"jited_bytes"`
	KeyNr    uint32 `btf:"key_size"`
	ValueNr  uint32 `btf:"value_size"`
	MaxNr    uint32 `btf:"max_entries"`
	Count    uint32
	_        uint32
	Measured bool
	_        [7]byte
	TagBytes [8]byte    `btf:"tag"`
	Name     value.Comm `json:"name" col:"NAME,width=16" help:"name of the object, truncated to 15 bytes by the kernel; of a link that of its program"`
}

type row struct {
	event
	Kind       string      `json:"kind" col:"KIND,width=4" help:"prog, map or link; with --verbosity also kprobe, uprobe, tracepoint or perf_event (another event of perf that runs a program)"`
	Type       string      `json:"bpf_type" col:"TYPE,width=16" help:"type of the program, map or link: name in the kernel without the common prefix"`
	Tag        string      `json:"tag" col:"TAG,width=16" help:"of programs: hash of the instructions as loaded"`
	Age        value.Count `json:"age_ns" col:"AGE_NS,width=16,right" help:"of programs: time since loading, at time (CLOCK_BOOTTIME)"`
	OwnerUser  value.Count `json:"loaded_uid" col:"LOADED,width=7" help:"of programs: ID of the user who loaded it"`
	Insns      value.Count `json:"insns" col:"INSNS,width=6,right" help:"of programs: number of BPF instructions after verification"`
	JITed      value.Count `json:"jited_bytes" col:"JITED,width=7,right" help:"of programs: size of the native code, 0 if interpreted"`
	Runs       value.Count `json:"runs" col:"RUNS,width=10,right" help:"of programs: runs while the kernel was measuring (bpftop, kernel.bpf_stats_enabled, --stats)"`
	RunTime    value.Count `json:"run_ns" col:"RUN_NS,width=12,right" help:"of programs: total run time of these runs"`
	Misses     value.Count `json:"misses" col:"MISSES,width=6,right" help:"of programs: runs skipped by the kernel because the program was already running on that CPU"`
	Program    value.Count `json:"prog_id" col:"PROG,width=6,right" help:"of links: ID of the program"`
	KeySize    value.Count `json:"key_bytes" col:"KEY,width=5,right" help:"of maps: size of a key"`
	ValueSize  value.Count `json:"value_bytes" col:"VALUE,width=7,right" help:"of maps: size of a value"`
	MaxEntries value.Count `json:"max_entries" col:"ENTRIES,width=9,right" help:"of maps: maximum number of entries, for some types the size in bytes"`
	FD         value.Count `json:"fd" col:"FD,width=4,right" help:"file descriptor of the holder"`
}

// Decode computes the derived columns.
func (r *row) Decode([]byte) error {
	kind := bpfKind(r.KindNr)
	isProg, isMap, isLink := kind == bpfKindKIND_PROG, kind == bpfKindKIND_MAP, kind == bpfKindKIND_LINK
	switch {
	case isProg:
		r.Type = value.ProgramType(r.TypeNr)
	case isMap:
		r.Type = value.MapType(r.TypeNr)
	default:
		r.Type = value.LinkType(r.TypeNr)
	}
	r.Kind = kind.name()
	r.Tag = ""
	if isProg {
		r.Tag = fmt.Sprintf("%x", r.TagBytes)
	}
	r.Age = value.Count{N: uint64(r.Time) - r.LoadNs, Given: isProg}
	r.OwnerUser = value.Count{N: uint64(r.OwnerUID), Given: isProg}
	r.Insns = value.Count{N: uint64(r.InsnsNr), Given: isProg}
	r.JITed = value.Count{N: uint64(r.JITedNr), Given: isProg}
	r.Runs = value.Count{N: r.Counts.Runs, Given: r.Measured}
	r.RunTime = value.Count{N: r.Counts.RunNs, Given: r.Measured}
	r.Misses = value.Count{N: r.Counts.Misses, Given: r.Measured}
	r.Program = value.Count{N: uint64(r.ProgID), Given: isLink && r.ProgID != 0}
	r.KeySize = value.Count{N: uint64(r.KeyNr), Given: isMap}
	r.ValueSize = value.Count{N: uint64(r.ValueNr), Given: isMap}
	r.MaxEntries = value.Count{N: uint64(r.MaxNr), Given: isMap}
	r.FD = value.Count{N: uint64(r.FDNr), Given: r.PID != 0}
	return nil
}

// Tool is the definition of bpflist.
var Tool = tool.Define(tool.Spec{
	Name:     "bpflist",
	Category: "process",
	Summary:  "List loaded BPF programs, maps and links and the processes holding them (like bpftool)",
	Description: `Lists the loaded BPF programs, maps and links with the processes that hold them, including those of this run of bpflist.

pid, uid, comm and cgroup describe the holder: of the processes that match the task filters, the first one, in the order of process IDs, with a file descriptor of the object. Without a holder, pid is 0 and uid is 4294967295. With a task filter, only objects held by matching processes are listed.

runs and run_ns increase only while the kernel measures run times. bpftop enables the measurement and shows the values per second.

With -v, each row is the number of open file descriptors of one kind in a process: prog, map and link, and perf events that run a program, as kprobe, uprobe, tracepoint or perf_event. A link to many functions (kprobe_multi, uprobe_multi) counts as a link and as that number of kprobes or uprobes. A file descriptor that a process has duplicated or inherited counts again. -vv has a row per probe, with its name in the column probe.

Kernels before 5.19 cannot list links; a notice on standard error reports this. On these kernels runs are available only if /proc/kallsyms is readable and contains the kernel's variables (CONFIG_KALLSYMS_ALL).`,
	Peers: []string{
		"Without -v, bpflist of BCC shows the number of programs and maps of each process (PID, COMM, TYPE, COUNT); here each object is a row. -v has BCC's columns, and -vv its list of probes, as rows.",
		"BCC finds probes by the PID in their names in tracefs, so only its own. Here all open perf events that run a program are counted, and the functions of links to many of them.",
		"bps (BCC) lists programs only, with its own names for their types, and without holders.",
		"bpftool lists one kind of object at a time; IDs, names and tags are the same.",
	},
	Examples: []string{
		"bpflist                           # all programs, maps and links",
		"bpflist -P --filter 'holders == 0' # programs that no process holds",
		"bpflist --comm systemd            # objects held by systemd",
		"bpflist -v                        # number of programs, maps, links and probes of each process",
		"bpflist -vv --filter 'kind == \"kprobe\"'  # which kernel functions are probed, by which process",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "verbose": ""},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	if o.Verbosity > 0 {
		return o.counts(env)
	}
	perCPU, err := env.PerCPU()
	if err != nil && !errors.Is(err, tool.ErrUnsupported) {
		return nil, err
	}
	list := &source.List[row]{
		Plan:      tool.Plan{Variables: perCPU, Optional: []string{"links"}},
		Columns:   []string{"kind", "id", "bpf_type", "name", "holders", "pid", "comm", "runs", "run_ns"},
		Iterators: []tool.Iterator{{Program: "holders"}},
	}
	all := !o.Programs && !o.Maps && !o.Links
	for _, kind := range []struct {
		program string
		wanted  bool
	}{{"progs", o.Programs}, {"maps", o.Maps}, {"links", o.Links}} {
		if all || kind.wanted {
			list.Iterators = append(list.Iterators, tool.Iterator{Program: kind.program})
		}
	}
	return list, nil
}
