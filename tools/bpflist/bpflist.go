// Package bpflist lists BPF programs, maps and links.
package bpflist

import (
	"errors"
	"fmt"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh bpflist.bpf.c

type options struct {
	Programs bool `flag:"programs,P" help:"programs; with others of these flags, those too"`
	Maps     bool `flag:"maps,M" help:"maps"`
	Links    bool `flag:"links,L" help:"links, which hold a program where it is attached"`
}

// counts is struct prog_counts of prog.bpf.h.
type counts struct{ Runs, RunNs, Misses uint64 }

type event struct {
	value.Task
	LoadNs   uint64
	Counts   counts
	ID       uint32 `json:"id" col:"ID,width=6" help:"its id, by kind, as bpftool has it"`
	KindNr   uint32 `btf:"kind"`
	TypeNr   uint32 `btf:"type"`
	ProgID   uint32
	OwnerUID uint32
	FDNr     uint32 `btf:"fd"`
	Holders  uint32 `json:"holders" col:"HOLD,width=4,right" help:"descriptors of it in all processes; what has none is held by others of these, by a pin in a file system, or where it is attached"`
	InsnsNr  uint32 `btf:"insns"`
	JITedNr  uint32 `btf:"jited_bytes"`
	KeyNr    uint32 `btf:"key_size"`
	ValueNr  uint32 `btf:"value_size"`
	MaxNr    uint32 `btf:"max_entries"`
	Measured bool
	_        [7]byte
	TagBytes [8]byte    `btf:"tag"`
	Name     value.Comm `json:"name" col:"NAME,width=16" help:"its name, of which the kernel keeps 15 bytes; of a link that of its program"`
}

type row struct {
	event
	Kind       string      `json:"kind" col:"KIND,width=4" help:"prog, map or link"`
	Type       string      `json:"bpf_type" col:"TYPE,width=16" help:"type of the program, map or link: the kernel's name, without what all begin with"`
	Tag        string      `json:"tag" col:"TAG,width=16" help:"of programs: hash of the instructions as loaded"`
	Age        value.Count `json:"age_ns" col:"AGE_NS,width=16,right" help:"of programs: time since it was loaded, until time (CLOCK_BOOTTIME)"`
	OwnerUser  value.Count `json:"loaded_uid" col:"LOADED,width=7" help:"of programs: user id that loaded it"`
	Insns      value.Count `json:"insns" col:"INSNS,width=6,right" help:"of programs: instructions, as the kernel runs them"`
	JITed      value.Count `json:"jited_bytes" col:"JITED,width=7,right" help:"of programs: size in the machine's instructions, 0 where it is interpreted"`
	Runs       value.Count `json:"runs" col:"RUNS,width=10,right" help:"of programs: times that it ran while the kernel was measuring (bpftop, kernel.bpf_stats_enabled, --stats)"`
	RunTime    value.Count `json:"run_ns" col:"RUN_NS,width=12,right" help:"of programs: time that these took"`
	Misses     value.Count `json:"misses" col:"MISSES,width=6,right" help:"of programs: times that it was left out, as it was running on that CPU already"`
	Program    value.Count `json:"prog_id" col:"PROG,width=6,right" help:"of links: id of the program"`
	KeySize    value.Count `json:"key_bytes" col:"KEY,width=5,right" help:"of maps: size of a key"`
	ValueSize  value.Count `json:"value_bytes" col:"VALUE,width=7,right" help:"of maps: size of a value"`
	MaxEntries value.Count `json:"max_entries" col:"ENTRIES,width=9,right" help:"of maps: entries that there may be, for some types bytes"`
	FD         value.Count `json:"fd" col:"FD,width=4,right" help:"the holder's descriptor"`
}

// Decode fills what follows from the event.
func (r *row) Decode([]byte) error {
	isProg, isMap, isLink := r.KindNr == 0, r.KindNr == 1, r.KindNr == 2
	r.Kind = [...]string{"prog", "map", "link"}[r.KindNr%3]
	r.Type = [...]func(uint32) string{value.ProgramType, value.MapType, value.LinkType}[r.KindNr%3](r.TypeNr)
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

// Tool is bpflist.
var Tool = tool.Define(tool.Spec{
	Name:     "bpflist",
	Category: "process",
	Summary:  "List BPF programs, maps and links, and who holds them",
	Description: `Lists the BPF programs, maps and links that are loaded, with the processes that hold them: those of this very run are among them.

The pid, uid, comm and cgroup are those of the holder, the first process that has a descriptor, in the order of process ids, of those that the task filter takes; without one the pid is 0 and the uid 4294967295. With a task filter only what its processes hold is listed.

runs and run_ns count only while the kernel measures: bpftop has it do so and shows what they do each second.

Before 5.19 the kernel cannot list links, as standard error says; runs are known there only where /proc/kallsyms has the kernel's variables (CONFIG_KALLSYMS_ALL) and may be read.`,
	Peers: []string{
		"BCC's bps lists programs alone, with its own names of their types, and shows no holders.",
		"bpftool lists the attributes of a kind at a time; ids, names and tags are the same.",
	},
	Examples: []string{
		"bpflist                           # all programs, maps and links",
		"bpflist -P --filter 'holders == 0' # programs that no process holds",
		"bpflist --comm systemd            # what systemd holds",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	perCPU, err := env.PerCPU()
	if err != nil && !errors.Is(err, tool.ErrUnsupported) {
		return nil, err
	}
	list := &tool.List[row]{
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
