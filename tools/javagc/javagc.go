// Package javagc traces garbage collections of Java virtual machines.
package javagc

import (
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh javagc.bpf.c -type what

type options struct {
	Time    uint64             `flag:"time,t" arg:"US" max:"18446744073709551" help:"only rows of at least this number of microseconds"`
	Minimum flags.Milliseconds `flag:"minimum,M" arg:"MS" help:"only rows of at least this time: milliseconds, or with a unit as 500us"`
	Text    string             `flag:"filter-text,F" arg:"TEXT" help:"only if the name of the collector or the pool contains this text"`
}

type event struct {
	value.Task
	Latency    value.Micros `json:"delta_ns" col:"GC TIME,width=8,right" help:"time from start to end of the collection (CLOCK_BOOTTIME)" btf:"delta_ns"`
	UsedBefore uint64       `json:"used_before_bytes" col:"BEFORE,width=11,right" help:"used bytes of the pool at the start"`
	Used       uint64       `json:"used_bytes" col:"USED,width=11,right" help:"used bytes of the pool at the end"`
	Committed  uint64       `json:"committed_bytes" col:"COMMITTED,width=11,right,extra" help:"committed bytes of the pool at the end"`
	Max        int64        `json:"max_bytes" col:"MAX,width=11,right,extra" help:"maximum size of the pool in bytes, -1 without a limit; 0 for a collection"`
	CPU        uint32       `json:"cpu" col:"CPU,width=7" help:"CPU on which the collection ended"`
	What       what         `json:"what" col:"WHAT,width=10" help:"collection: a pause of the program; pool: the effect of a collection on one memory pool"`
	Full       bool         `json:"full" col:"FULL,width=5" help:"whether the whole heap was collected, according to the memory manager (MarkSweepCompact, PS MarkSweep, G1 Old Generation); false for a pool"`
	ManagerLen uint8
	PoolLen    uint8
	Name       [48]byte `btf:"manager"`
	PoolName   [48]byte `btf:"pool"`
}

type row struct {
	event
	Manager value.Bytes `json:"manager" col:"MANAGER,width=20" help:"name of the memory manager (at most 48 bytes); absent for a pause without one, such as G1's Remark and Cleanup in JDK 17"`
	Pool    value.Bytes `json:"pool" col:"POOL,width=20" help:"name of the pool (at most 48 bytes); absent for a collection"`
}

// Tool is the definition of javagc.
var Tool = tool.Define(tool.Spec{
	Name:     "javagc",
	Category: "runtime",
	Summary:  "Trace Java garbage collections (GC pauses) and their effect on memory pools",
	Description: `Shows each garbage collection of a Java virtual machine (HotSpot) as it ends, and its effect on the memory pools, with the bytes in use before and after.

A row "collection" is a pause of the program: what -Xlog:gc logs as a pause. If one pause has two collections, such as one of the young generation and then one of the whole heap, each has a row, and the second begins where the first ends. In JDK 17, G1's pauses Remark and Cleanup have rows without a manager. GC TIME includes the time that the probes take: about 18 of them per collection.

The hooks are the USDT probes hotspot:gc__begin, gc__end, mem__pool__gc__begin and mem__pool__gc__end, which libjvm.so contains if it was configured with --enable-dtrace, as in Debian, Fedora and Red Hat. Other builds have no probes: the tool then waits for a process that has them. Probes are attached in every libjvm.so that a process has mapped, including those in containers; in programs that start later, some milliseconds after they map it.

Pauses and pools whose begin was not observed, such as those in progress when the tool started, have no row: they are counted as no_begin in the summary.

The probes differ between collectors. ZGC and Shenandoah collect while the program runs, so the rows of their pools are not pauses.`,
	Peers: []string{
		"-t is 0 by default; libbpf-tools omits collections shorter than 1 ms.",
		"Each pool has a row of its own, with its name; libbpf-tools keeps one start time per process, so that only the time of the last pool of a collection is right.",
		"The process is selected with -p, not with an argument (javagc and ugc of BCC). -F is --filter-text, and -m does not exist: GC TIME is in microseconds.",
	},
	Examples: []string{
		"javagc                                 # all collections",
		"javagc -p 1234 --columns +used_before_bytes,used_bytes # one process, with the memory use",
		`javagc -M 10 --filter 'what == "collection"' # pauses of 10 ms or more`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	least := max(o.Time*1e3, uint64(o.Minimum))
	src := &source.Events[row]{
		Plan: tool.Plan{
			Variables: map[string]any{"targ_min_ns": least},
			Files:     map[string]binary.Files{"libjvm": {Names: []string{"libjvm.so"}}},
		},
		Columns:     []string{"time", "cpu", "pid", "delta_ns", "what", "full", "manager", "pool"},
		BufferBytes: 1 << 20,
	}
	if o.Text != "" {
		src.Keep = func(r *row) bool {
			return strings.Contains(string(r.Manager), o.Text) || strings.Contains(string(r.Pool), o.Text)
		}
	}
	return src, nil
}

// Decode truncates the names to their lengths.
func (r *row) Decode([]byte) error {
	r.Manager, r.Pool = value.BytesOf(r.Name[:], r.ManagerLen), value.BytesOf(r.PoolName[:], r.PoolLen)
	r.Full = r.What == collection && isFull(string(r.Manager), r.Full)
	return nil
}
