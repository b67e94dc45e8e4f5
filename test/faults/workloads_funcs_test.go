package faults

import "strconv"

// functionWorkloads returns the workloads of tools for functions and tracepoints.
func functionWorkloads() map[string]workload {
	return map[string]workload{
		"funcinterval": {
			place: library("libprobe.so.1", "probe"), job: "probe", n: 200, storm: "probe", storms: 100_000, begun: 1,
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid), l.place + ":probe"} },
		},
		"funcslower": {
			place: library("libprobe.so.1", "probe"), job: "probe", n: 200, storm: "probe", storms: 100_000,
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid), "-m", "0", l.place + ":probe"} },
		},
		"stacksnoop": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 60_000, left: inAnyWay,
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid), "t:sched:sched_switch"} },
		},
	}
}
