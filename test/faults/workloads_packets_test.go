package faults

import "strconv"

// packetWorkloads returns the workload of the tool for packets: a datagram on the loopback interface
// is one row.
func packetWorkloads() map[string]workload {
	return map[string]workload{
		"packetsnoop": {
			place: missing, btf: "the kernel's own BTF", job: "datagram", n: 1000, storm: "datagram", storms: 100_000,
			args: func(l *load) []string { return []string{"--pid", strconv.Itoa(l.pid)} },
		},
	}
}
