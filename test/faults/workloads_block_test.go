package faults

import "strconv"

// blockWorkloads returns the workloads of further tools for block I/O and sockets.
func blockWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	disk := func(l *load) []string { return append(byPID()(l), "-d", l.place) }
	return map[string]workload{
		"biolatpcts": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000,
			args: func(l *load) []string { return append(byPID()(l), l.place) },
		},
		"biopattern": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000, column: "ios", args: disk,
		},
		"bitesize": {
			place: loopDisk, job: "read", n: 300, storm: "read", storms: 5000, args: disk,
		},
	}
}
