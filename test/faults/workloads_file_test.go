package faults

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// fileWorkloads returns the workloads of tools for files, mounts and writeback.
func fileWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"dirtop": {
			place: file, job: "pread", n: 1000, storm: "pread", storms: 100_000, column: "reads",
			args: func(l *load) []string { return append(byPID()(l), "-d", filepath.Dir(l.place)) },
		},
		"filegone": {
			place: missing, job: "remove", n: 500, storm: "remove", storms: 60_000, args: byPID(),
		},
		"mountsnoop": {
			place: missing, job: "unmount", n: 500, storm: "unmount", storms: 60_000, args: byPID(),
		},
		"statsnoop": {
			place: missing, job: "stat", n: 1000, storm: "stat", storms: 150_000, args: byPID("-x"),
		},
		"syncsnoop": {
			place: file, job: "fsync nothing", n: 500, storm: "fsync nothing", storms: 60_000, args: byPID(),
		},
	}
}

// fileJobs returns the jobs of these workloads.
func fileJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){
		"remove":        removes,
		"stat":          stats,
		"unmount":       unmounts,
		"fsync nothing": closedFsyncs,
	}
}

// removes creates a directory and removes it.
func removes(n int, path string) (int, error) {
	for i := range n {
		if err := errors.Join(unix.Mkdir(path, 0o700), unix.Rmdir(path)); err != nil {
			return i, err
		}
	}
	return n, nil
}

// stats asks for the attributes of a file that does not exist.
func stats(n int, path string) (int, error) {
	var st unix.Stat_t
	for i := range n {
		if err := unix.Fstatat(unix.AT_FDCWD, path, &st, 0); err != unix.ENOENT {
			return i, fmt.Errorf("stat: %v", err)
		}
	}
	return n, nil
}

// unmounts unmounts a path that does not exist.
func unmounts(n int, path string) (int, error) {
	for i := range n {
		if err := unix.Unmount(path, 0); err != unix.ENOENT {
			return i, fmt.Errorf("unmount: %v", err)
		}
	}
	return n, nil
}

// closedFsyncs calls fsync on a file descriptor that is not open, so that no disk is involved.
func closedFsyncs(n int, _ string) (int, error) {
	for i := range n {
		if err := unix.Fsync(1 << 20); err != unix.EBADF {
			return i, fmt.Errorf("fsync: %v", err)
		}
	}
	return n, nil
}
