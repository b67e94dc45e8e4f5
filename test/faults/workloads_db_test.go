package faults

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/corescope/corescope/internal/tooltest/native"
)

// dispatchCommand is the function of MariaDB that executes a command of a client.
const dispatchCommand = "_Z16dispatch_command19enum_server_commandP3THDPcjb"

// databaseServer places a library with that function, under the name of a server.
func databaseServer(t testing.TB) string {
	t.Helper()
	return native.Write(t, filepath.Join(t.TempDir(), "mariadbd"), []string{dispatchCommand}).Path
}

// query is a call of it.
func query() native.Call {
	const comQuery = 3
	text := "select 1 from t where name = 'a text of some length, as queries have'"
	return native.Call{Args: [7]uint64{comQuery, 0, native.Pointer(native.Text(text)), uint64(len(text))}}
}

// dbWorkloads are those of tools for databases.
func dbWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"dbslower": {
			place: databaseServer, job: "query", n: 200, storm: "query", storms: 100_000, args: byPID("-m", "0"),
		},
		"dbstat": {
			place: databaseServer, job: "query", n: 200, storm: "query", storms: 100_000, args: byPID(),
		},
		"seccompprofile": {
			place: missing, job: "getppid", n: 1000, storm: "getppid", storms: 200_000, column: "count",
			args: byPID("--filter", `syscall == "getppid"`),
		},
	}
}
