package main

import (
	"path/filepath"
	"slices"
)

// benchmark is a tool, with some options, under a load.
type benchmark struct {
	tool string
	// options are those of both, and what each has of its own.
	options, ours, peer []string
	load                string
	// unit is what a load's event is called; count how many of them an unpaced run has.
	unit  string
	count int
	// rates are the paced runs, in events a second, each of two seconds.
	rates []int
	// rows are how many lines a tool writes for an event; 0 for distributions.
	rows int
	// target is how much of the peer's time in the kernel ours may take, paced and not.
	paced, unpaced float64
}

// benchmarks are all that `make bench` runs.
var benchmarks = []benchmark{
	{tool: "opensnoop", load: "opens", unit: "open", count: 300_000, rates: []int{20_000, 50_000}, rows: 1, paced: 0.25, unpaced: 0.5},
	{tool: "execsnoop", load: "execs", unit: "exec", count: 2_000, rates: []int{200}, rows: 1, paced: 0.25, unpaced: 0.5},
	{tool: "tcplife", load: "conns", unit: "connection", count: 10_000, rates: []int{2_000}, rows: 2, paced: 0.25, unpaced: 0.5},
	{tool: "biolatency", load: "reads", unit: "read", count: 20_000, unpaced: 0.7},
	{tool: "biolatency", options: []string{"-D"}, load: "reads", unit: "read", count: 20_000, unpaced: 0.7},
	{tool: "biolatency", options: []string{"-Q"}, load: "reads", unit: "read", count: 20_000, unpaced: 0.7},
	{tool: "runqlat", load: "trips", unit: "round trip", count: 100_000, unpaced: 0.7},
	{tool: "runqlat", options: []string{"-P"}, load: "trips", unit: "round trip", count: 100_000, unpaced: 0.7},
}

func (b *benchmark) name() string {
	name := b.tool
	for _, o := range b.options {
		name += " " + o
	}
	return name
}

// subjects are ours and the peer, in this order.
func (b *benchmark) subjects(s *settings) [2]subject {
	ours := slices.Concat([]string{s.ours, b.tool}, b.options, b.ours)
	peer := slices.Concat([]string{"test/peers/run.sh", s.peers, b.tool + "-libbpf"}, b.options, b.peer)
	return [2]subject{{"corescope", ours}, {"libbpf-tools", peer}}
}

// disk is what all that each has takes on disk.
func (s *settings) disk() (result, error) {
	ours, err := bytesBelow(filepath.Dir(s.ours))
	if err != nil {
		return result{}, err
	}
	peer, err := packageBytes(s.peers, "libbpf-tools")
	if err != nil {
		return result{}, err
	}
	return result{
		Tool: "all", Figure: "disk", Unit: "MB", Ours: float64(ours) / 1e6, Peer: float64(peer) / 1e6,
		Ratio: float64(ours) / float64(peer), Target: 1,
	}, nil
}
