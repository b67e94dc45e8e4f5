// Package javagc shows the garbage collections of Java programs.
package javagc

import (
	"strings"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh javagc.bpf.c

type options struct {
	Time    uint64  `flag:"time,t" arg:"US" help:"only what took so many microseconds at least"`
	Minimum float64 `flag:"minimum,M" arg:"MS" help:"only what took so many milliseconds at least"`
	Text    string  `flag:"filter-text,F" arg:"TEXT" help:"only where the name of the collector or of the pool contains this"`
}

type event struct {
	value.Task
	Latency    value.Micros `json:"delta_ns" col:"GC TIME,width=8,right" help:"from the begin of the collection to its end (CLOCK_BOOTTIME)" btf:"delta_ns"`
	UsedBefore uint64       `json:"used_before_bytes" col:"BEFORE,width=11,right" help:"bytes of the pool that were in use at the begin"`
	Used       uint64       `json:"used_bytes" col:"USED,width=11,right" help:"bytes of the pool that are in use at the end"`
	Committed  uint64       `json:"committed_bytes" col:"COMMITTED,width=11,right,extra" help:"bytes that the pool has at the end"`
	Max        int64        `json:"max_bytes" col:"MAX,width=11,right,extra" help:"bytes that the pool may have, -1 without a limit; 0 for a collection"`
	CPU        uint32       `json:"cpu" col:"CPU,width=7" help:"CPU on which it ended"`
	What       what         `json:"what" col:"WHAT,width=10" help:"collection: the program stood still for that; pool: what a collection was to a part of the memory"`
	Full       bool         `json:"full" col:"FULL,width=5" help:"the collection was one of the whole heap; false for a pool"`
	ManagerLen uint8
	PoolLen    uint8
	Name       [48]byte `btf:"manager"`
	PoolName   [48]byte `btf:"pool"`
}

type row struct {
	event
	Manager value.Bytes `json:"manager" col:"MANAGER,width=20" help:"who collects, as Java names it (48 bytes at most); absent for a collection"`
	Pool    value.Bytes `json:"pool" col:"POOL,width=20" help:"name of the pool (48 bytes at most); absent for a collection"`
}

// Tool is javagc.
var Tool = tool.Define(tool.Spec{
	Name:     "javagc",
	Category: "runtime",
	Summary:  "Show the garbage collections of Java programs",
	Description: `Shows each garbage collection of a Java virtual machine (HotSpot) as it ends: the collections themselves, for which the program stands still, and what each was to the pools of memory that it concerns, with the bytes in use before and after.

These are the probes hotspot:gc__begin, gc__end, mem__pool__gc__begin and mem__pool__gc__end that libjvm.so has built in where it was configured with --enable-dtrace, as that of Debian, Fedora and Red Hat is. Other builds have none: the tool then waits for one that has. The probes are attached in every libjvm.so that a process has mapped, of containers too, and in those that are started later, some milliseconds after.

Which collectors tell of what differs. ZGC and Shenandoah work while the program runs: what is told of their pools is no pause.`,
	Peers: []string{
		"-t is 0 without being given, where libbpf-tools leave out what took less than 1 ms.",
		"A pool is a row of its own, known by its name; libbpf-tools keep one begin a process, so that of a collection only the last pool's time is right.",
		"The process is given by -p, not as an argument (BCC's javagc, ugc). -F is --filter-text, and -m is not there: GC TIME is in microseconds.",
	},
	Examples: []string{
		"javagc                                 # every collection",
		"javagc -p 1234 --columns +used_before_bytes,used_bytes # of one process, with what it gained",
		"javagc -M 10 --filter 'what == \"collection\"' # pauses of 10 ms and more",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	least := max(o.Time*1e3, uint64(o.Minimum*1e6))
	src := &tool.Events[row]{
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

// Decode cuts the names to their lengths.
func (r *row) Decode([]byte) error {
	r.Manager, r.Pool = value.BytesOf(r.Name[:], r.ManagerLen), value.BytesOf(r.PoolName[:], r.PoolLen)
	return nil
}
