package bpflist

import (
	"cmp"
	"slices"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// name returns the name of a kind, "" for KIND_NONE.
func (k bpfKind) name() string {
	return map[bpfKind]string{
		bpfKindKIND_PROG: "prog", bpfKindKIND_MAP: "map", bpfKindKIND_LINK: "link", bpfKindKIND_KPROBE: "kprobe",
		bpfKindKIND_UPROBE: "uprobe", bpfKindKIND_TRACEPOINT: "tracepoint", bpfKindKIND_PERF_EVENT: "perf_event",
	}[k]
}

// isProbe reports whether the objects of a kind are perf events.
func (k bpfKind) isProbe() bool { return k > bpfKindKIND_LINK }

// holding mirrors struct event: an open file of a process, as the program held sends it.
type holding struct {
	value.Task
	LoadNs                              uint64
	RunCounts                           counts `btf:"counts"`
	ID                                  uint32
	KindNr                              uint32 `btf:"kind"`
	Many                                uint32 `btf:"type"`
	ProgID, OwnerUID                    uint32
	FD                                  uint32
	Holders, Insns, JITedBytes, KeySize uint32
	ValueSize, MaxEntries               uint32
	Number                              uint32 `btf:"count"`
	_                                   uint32
	Measured                            bool
	_                                   [7]byte
	Tag                                 [8]byte
	Name                                value.Comm
}

// tally is a row of counts. Decode counts the events, and Next returns the rows at the end.
type tally struct {
	holding
	Kind  string      `json:"kind" col:"TYPE,width=10" help:"prog, map or link; with --verbosity also kprobe, uprobe, tracepoint or perf_event (another event of perf that runs a program)"`
	Count uint64      `json:"count" col:"COUNT,width=6,right" help:"with --verbosity: open file descriptors of this kind in the process; functions for links to many functions"`
	Probe value.Bytes `json:"probe" col:"PROBE,width=40" help:"with -vv: kprobe:FUNCTION+OFFSET, kretprobe:FUNCTION, uprobe:FILE:OFFSET, uretprobe:FILE:OFFSET or tracepoint:NAME; absent for other kinds, for links to many functions, without CAP_SYS_ADMIN, and in a child PID namespace"`

	named bool // rows have names of probes
	found map[counted]*total
	rest  []*total
}

// counted is what counts are grouped by.
type counted struct {
	pid   uint32
	kind  bpfKind
	probe string
}

type total struct {
	counted
	task  value.Task
	count uint64
}

// Decode counts an open file. There is a row for it only at the end.
func (r *tally) Decode([]byte) error {
	kind := bpfKind(r.KindNr)
	probe := ""
	if r.named && kind.isProbe() {
		probe = probeName(r.PID, r.FD)
	}
	if many := bpfKind(r.Many); many != bpfKindKIND_NONE {
		r.add(counted{r.PID, kind, ""}, 1)
		kind = many
	}
	r.add(counted{r.PID, kind, probe}, uint64(r.Number))
	return source.ErrMore
}

func (r *tally) add(k counted, n uint64) {
	if r.found[k] == nil {
		r.found[k] = &total{counted: k, task: r.Task}
	}
	r.found[k].count += n
}

// Next fills the next row, in the order of processes.
func (r *tally) Next(end bool) bool {
	if !end {
		return false
	}
	for _, t := range r.found {
		r.rest = append(r.rest, t)
	}
	clear(r.found)
	slices.SortFunc(r.rest, func(a, b *total) int {
		return cmp.Or(cmp.Compare(a.pid, b.pid), cmp.Compare(a.kind, b.kind), cmp.Compare(a.probe, b.probe))
	})
	if len(r.rest) == 0 {
		return false
	}
	t := r.rest[0]
	r.rest = r.rest[1:]
	r.Task, r.Kind, r.Count, r.Probe = t.task, t.kind.name(), t.count, nil
	if t.probe != "" {
		r.Probe = value.Bytes(t.probe)
	}
	return true
}

// counts returns the source of counts per process.
func (o *options) counts(env *tool.Env) (tool.Source, error) {
	list := &source.List[tally]{
		Columns:   []string{"pid", "comm", "kind", "count"},
		Iterators: []tool.Iterator{{Program: "held"}},
		Row:       tally{found: map[counted]*total{}},
	}
	if o.Verbosity == 1 {
		return list, nil
	}
	list.Columns = append(list.Columns, "probe")
	list.Plan.Keep = []system.Capability{system.CapSysAdmin}
	ns, err := env.PIDNamespace()
	if err != nil {
		return nil, err
	}
	list.Row.named = ns.Initial
	return list, nil
}
