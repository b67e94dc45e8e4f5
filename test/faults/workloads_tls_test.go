package faults

import "strconv"

// tlsWorkloads are those of tools for TLS libraries and locks of programs.
func tlsWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"ssllatency": {
			place: library("libssl.so.3", "SSL_write"), job: "encrypt", n: 200, storm: "encrypt", storms: 100_000, args: byPID(),
		},
		"sslsnoop": {
			place: library("libssl.so.3", "SSL_write"), job: "encrypt", n: 200, storm: "encrypt", storms: 100_000, args: byPID(),
		},
	}
}
