package main

import (
	"path/filepath"
	"slices"
)

// benchmark is a tool, with some options, under a load.
type benchmark struct {
	tool string
	// options are those of both.
	options []string
	load    string
	// unit is what a load's event is called; count how many of them an unpaced run has.
	unit  string
	count int
	// rates are the paced runs, in events a second, each of two seconds.
	rates []int
	// rows are how many lines a tool writes for an event: 0 for tools that write none for
	// an event, unknown for those of which it depends on the event.
	rows int
	// paced and unpaced are how much of the peer's time in the kernel ours may take.
	paced, unpaced float64
	// isFurther is not one of the five: fewer figures in fewer rounds.
	isFurther bool
}

// unknown is a number of rows that is not judged.
const unknown = -1

// benchmarks are all that `make bench` runs.
var benchmarks = []benchmark{
	{tool: "opensnoop", load: "opens", unit: "open", count: 300_000, rates: []int{20_000, 50_000}, rows: 1, paced: 0.25, unpaced: 0.5},
	{tool: "execsnoop", load: "execs", unit: "exec", count: 2_000, rates: []int{200}, rows: 1, paced: 0.25, unpaced: 0.5},
	{tool: "tcplife", load: "conns", unit: "connection", count: 10_000, rates: []int{2_000}, rows: 2, paced: 0.25, unpaced: 0.5},
	{tool: "biolatency", load: "reads", unit: "read", count: 20_000, unpaced: 0.7},
	{tool: "biolatency", options: []string{"-D"}, load: "reads", unit: "read", count: 20_000, unpaced: 0.7},
	{tool: "biolatency", options: []string{"-Q"}, load: "reads", unit: "read", count: 20_000, unpaced: 0.7},
	{tool: "biolatency", options: []string{"-F"}, load: "reads", unit: "read", count: 20_000, unpaced: 0.7},
	{tool: "runqlat", load: "trips", unit: "round trip", count: 100_000, rates: []int{20_000}, paced: 0.7, unpaced: 0.7},
	{tool: "runqlat", options: []string{"-P"}, load: "trips", unit: "round trip", count: 100_000, unpaced: 0.7},
	further(benchmark{tool: "biosnoop", load: "reads", unit: "read", count: 20_000, rows: 1}),
	further(benchmark{tool: "biotop", options: []string{"-C"}, load: "reads", unit: "read", count: 20_000}),
	further(benchmark{tool: "syscount", load: "calls", unit: "call", count: 1_000_000}),
	further(benchmark{tool: "syscount", options: []string{"-L"}, load: "calls", unit: "call", count: 1_000_000}),
	further(benchmark{tool: "tcpconnect", load: "conns", unit: "connection", count: 10_000, rows: 1}),
	further(benchmark{tool: "tcpstates", load: "conns", unit: "connection", count: 10_000, rows: unknown}),
	further(benchmark{tool: "tcptop", options: []string{"-C"}, load: "sends", unit: "byte there and back", count: 50_000}),
	further(benchmark{tool: "vfsstat", load: "writes", unit: "write", count: 500_000}),
	further(benchmark{tool: "cachestat", load: "writes", unit: "write", count: 500_000}),
	further(benchmark{tool: "filetop", options: []string{"-C"}, load: "writes", unit: "write", count: 500_000}),
}

// further is a benchmark of a tool that no aim was set for, but to be no dearer.
func further(b benchmark) benchmark {
	b.isFurther, b.unpaced = true, 1
	return b
}

func (b *benchmark) name() string {
	name := b.tool
	for _, o := range b.options {
		name += " " + o
	}
	return name
}

// rounds are the settings', and three at most for a further tool.
func (b *benchmark) rounds(s *settings) int {
	if b.isFurther {
		return min(s.rounds, 3)
	}
	return s.rounds
}

// ourName and peerName are for tables.
const (
	ourName  = "corescope"
	peerName = "libbpf-tools"
)

func (b *benchmark) ours(s *settings) subject {
	return subject{name: ourName, args: slices.Concat([]string{s.ours, b.tool}, b.options)}
}

func (b *benchmark) peer(s *settings) subject {
	return subject{name: peerName, root: s.peers, args: append([]string{"/usr/sbin/" + b.tool + "-libbpf"}, b.options...)}
}

// disk is what all that each has takes on disk.
func (s *settings) disk() (result, error) {
	ours, err := bytesBelow(filepath.Dir(s.ours))
	if err != nil {
		return result{}, err
	}
	peer, err := packageBytes(s.peers, peerName)
	if err != nil {
		return result{}, err
	}
	return result{
		Tool: "all", Figure: "disk", Unit: "MB", Ours: float64(ours) / 1e6, Peer: float64(peer) / 1e6,
		Ratio: float64(ours) / float64(peer), Target: 1,
	}, nil
}
