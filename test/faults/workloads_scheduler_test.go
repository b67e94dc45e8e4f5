package faults

import "strconv"

// schedulerWorkloads returns the workloads of tools that observe the scheduler.
func schedulerWorkloads() map[string]workload {
	byTID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--tid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"cpudist": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, left: inAnyWay, args: byTID(),
		},
		"runqslower": {
			place: missing, job: "sleep", n: 500, storm: "sleep", storms: 20_000, fits: true, left: inAnyWay, args: byTID("0"),
		},
	}
}
