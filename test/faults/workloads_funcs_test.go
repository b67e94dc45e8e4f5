package faults

import (
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

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
		"ppchcalls": {
			place: hypervisorCalls, job: "nothing", storm: "nothing", column: "count",
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid)} },
		},
		"stacksnoop": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, fits: true, left: inAnyWay, tracefs: 4,
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid), "t:sched:sched_switch"} },
		},
	}
}

// hypervisorCalls skips the test on a kernel without hypervisor calls of PowerPC.
func hypervisorCalls(t testing.TB) string {
	t.Helper()
	if !tooltest.HasTracepoint(t, "hcall_exit") {
		t.Skip("only kernels for PowerPC have the tracepoint hcall_exit")
	}
	return missing(t)
}
