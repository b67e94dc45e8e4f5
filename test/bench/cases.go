package main

import (
	"fmt"
	"os"
	"slices"
)

// benchmark is a tool, its options and a load.
type benchmark struct {
	tool string
	// options are passed to both tools.
	options []string
	load    string
	// unit is the name of an event of the load, count the number of events of an unpaced run.
	unit  string
	count int
	// rates are the rates of the paced runs in events per second. Each takes two seconds.
	rates []int
	// rows is the number of rows that the tool writes per event, 0 if it aggregates events, or
	// unknown if it depends on the event.
	rows int
	// paced and unpaced are the target ratios of BPF run time to that of the peer.
	paced, unpaced float64
	// isSecondary benchmarks measure fewer figures in fewer rounds.
	isSecondary bool
}

// unknown is a number of rows that is not checked.
const unknown = -1

// benchmarks are the benchmarks that `make bench` runs.
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
	secondary(benchmark{tool: "biosnoop", load: "reads", unit: "read", count: 20_000, rows: 1}),
	secondary(benchmark{tool: "biotop", options: []string{"-C"}, load: "reads", unit: "read", count: 20_000}),
	secondary(benchmark{tool: "syscount", load: "calls", unit: "call", count: 1_000_000}),
	secondary(benchmark{tool: "syscount", options: []string{"-L"}, load: "calls", unit: "call", count: 1_000_000}),
	secondary(benchmark{tool: "tcpconnect", load: "conns", unit: "connection", count: 10_000, rows: 1}),
	secondary(benchmark{tool: "tcpstates", load: "conns", unit: "connection", count: 10_000, rows: unknown}),
	secondary(benchmark{tool: "tcptop", options: []string{"-C"}, load: "sends", unit: "byte there and back", count: 50_000}),
	secondary(benchmark{tool: "vfsstat", load: "writes", unit: "write", count: 500_000}),
	secondary(benchmark{tool: "cachestat", load: "writes", unit: "write", count: 500_000}),
	secondary(benchmark{tool: "filetop", options: []string{"-C"}, load: "writes", unit: "write", count: 500_000}),
}

// secondary returns b as a secondary benchmark. Its only target is that the BPF run time does
// not exceed that of the peer.
func secondary(b benchmark) benchmark {
	b.isSecondary, b.unpaced = true, 1
	return b
}

func (b *benchmark) name() string {
	name := b.tool
	for _, o := range b.options {
		name += " " + o
	}
	return name
}

// rounds returns the number of rounds, at most three for a secondary benchmark.
func (b *benchmark) rounds(s *settings) int {
	if b.isSecondary {
		return min(s.rounds, 3)
	}
	return s.rounds
}

// ourName and peerName are the names of the subjects in tables, and baseName that of another binary of
// corescope instead of a peer.
const (
	ourName  = "corescope"
	peerName = "libbpf-tools"
	baseName = "base"
)

// peer returns the name of what corescope is compared with.
func (s *settings) peer() string {
	if s.base != "" {
		return baseName
	}
	return peerName
}

func (b *benchmark) ours(s *settings) subject {
	return subject{name: ourName, args: slices.Concat([]string{s.ours, b.tool}, b.options)}
}

func (b *benchmark) peer(s *settings) subject {
	if s.base != "" {
		return subject{name: baseName, args: slices.Concat([]string{s.base, b.tool}, b.options)}
	}
	return subject{name: peerName, root: s.peers, args: append([]string{"/usr/sbin/" + b.tool + "-libbpf"}, b.options...)}
}

// disk compares the disk space of corescope with that of the libbpf-tools package.
func (s *settings) disk() (result, error) {
	ours, err := os.Stat(s.ours) // the agent is a program, and a package, of its own
	if err != nil {
		return result{}, fmt.Errorf("find size: %w", err)
	}
	peer, err := packageBytes(s.peers, peerName)
	if err != nil {
		return result{}, err
	}
	return result{
		Tool: "all", Figure: "disk space", Unit: "MB", Ours: float64(ours.Size()) / 1e6, Peer: float64(peer) / 1e6,
		Ratio: float64(ours.Size()) / float64(peer), Target: 1,
	}, nil
}
