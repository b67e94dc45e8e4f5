package faults

import (
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/corescope/corescope/internal/tooltest/native"
)

// mutexes places a library with functions that lock and release mutexes.
func mutexes(t testing.TB) string {
	t.Helper()
	return native.Write(t, filepath.Join(t.TempDir(), "libpthread.so.0"), mutexFunctions()).Path
}

func mutexFunctions() []string { return []string{"pthread_mutex_lock", "pthread_mutex_unlock"} }

// lastMutex is the address of the last mutex that inversions has used: each is used in one inversion.
var lastMutex uint64

// rowsPerInversion is the number of rows of a cycle of two mutexes.
const rowsPerInversion = 4

// inversions makes two threads lock two mutexes in both orders, for n rows.
func inversions(n int, path string) (int, error) {
	lib := libraries[path]
	if lib == nil {
		lib = &native.Library{Path: path}
		if err := lib.Load(mutexFunctions()...); err != nil {
			return 0, err
		}
		libraries[path] = lib
	}
	in := func(first, second uint64) {
		for i, mutex := range []uint64{first, second, second, first} {
			lib.Call(mutexFunctions()[i/2], native.Call{Args: [7]uint64{mutex}})
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range n / rowsPerInversion {
		a, b := lastMutex+64, lastMutex+128
		lastMutex = b
		in(a, b)
		var other sync.WaitGroup
		other.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			in(b, a)
		})
		other.Wait()
	}
	return n / rowsPerInversion * rowsPerInversion, nil
}

// tlsWorkloads are those of tools for TLS libraries and locks of programs.
func tlsWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"deadlock": {
			place: mutexes, job: "inversions", n: 200, storm: "inversions", storms: 2000, fits: true, args: byPID(),
		},
		"ssllatency": {
			place: library("libssl.so.3", "SSL_write"), job: "encrypt", n: 200, storm: "encrypt", storms: 100_000, args: byPID(),
		},
		"sslsnoop": {
			place: library("libssl.so.3", "SSL_write"), job: "encrypt", n: 200, storm: "encrypt", storms: 100_000, args: byPID(),
		},
	}
}
