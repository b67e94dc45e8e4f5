package faults

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// fileWorkloads returns the workloads of tools for files, mounts and writeback.
func fileWorkloads() map[string]workload {
	byPID := func(more ...string) func(*load) []string {
		return func(l *load) []string { return append([]string{"--pid", strconv.Itoa(l.pid)}, more...) }
	}
	return map[string]workload{
		"cachetop": {
			place: loopDisk, job: "miss", n: 300, storm: "miss", storms: 5000, column: "misses",
			args: func(l *load) []string { return []string{"--tid", strconv.Itoa(l.pid)} },
		},
		"dcsnoop": {
			place: missingTraced, job: "open another", n: 500, storm: "open another", storms: 60_000, args: byPID(),
		},
		"dcstat": {
			place: missingTraced, job: "open another", n: 500, storm: "open another", storms: 60_000, column: "misses", args: byPID(),
		},
		"dirtop": {
			place: file, job: "pread", n: 1000, storm: "pread", storms: 100_000, column: "reads",
			args: func(l *load) []string { return append(byPID()(l), "-d", filepath.Dir(l.place)) },
		},
		"filegone": {
			place: missing, job: "remove", n: 500, storm: "remove", storms: 60_000, args: byPID(),
		},
		"filelife": {
			place: missingTraced, job: "create", n: 500, storm: "create", storms: 60_000, args: byPID(),
		},
		"fsnotifysnoop": {
			place: noFunctions, job: "nothing", storm: "nothing", args: byPID(),
		},
		"readahead": {
			place: noFunctions, job: "nothing", storm: "nothing", args: byPID(),
		},
		"virtiostat": {
			place: noFunctions, job: "nothing", storm: "nothing", machine: true, column: "in_sgs",
			args: func(*load) []string { return nil },
		},
		"mountsnoop": {
			place: missing, job: "unmount", n: 500, storm: "unmount", storms: 60_000, args: byPID(),
		},
		"statsnoop": {
			place: missing, job: "stat", n: 1000, storm: "stat", storms: 150_000, args: byPID("-x"),
		},
		"syncsnoop": {
			place: missing, job: "fsync nothing", n: 500, storm: "fsync nothing", storms: 60_000, args: byPID(),
		},
		"writeback": {
			place: ownDisk, job: "write back", n: 100, storm: "write back", storms: 1000, fits: true, machine: true, args: onDisk,
		},
	}
}

// fileJobs returns the jobs of these workloads.
func fileJobs() map[string]func(n int, place string) (int, error) {
	return map[string]func(int, string) (int, error){
		"create":        creates,
		"fsync nothing": closedFsyncs,
		"open another":  opensOthers,
		"remove":        removes,
		"stat":          stats,
		"write back":    writesBack,
		"unmount":       unmounts,
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

// creates creates a file and removes it.
func creates(n int, path string) (int, error) {
	for i := range n {
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return i, err
		}
		if err := errors.Join(unix.Close(fd), unix.Unlink(path)); err != nil {
			return i, err
		}
	}
	return n, nil
}

// missingTraced is missing for tools that trace functions of the kernel.
func missingTraced(t testing.TB) string {
	t.Helper()
	tooltest.KernelFunctions(t)
	return missing(t)
}

// ownDisk mounts a file system on a disk of its own and returns a file in it.
func ownDisk(t testing.TB) string {
	t.Helper()
	mounts := tooltest.NewMounts(t)
	return filepath.Join(mounts.At(mounts.MountExt4(t)), "file")
}

// writesBack modifies a file and writes it to disk. The kernel decides in how many runs.
func writesBack(n int, path string) (int, error) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	page := make([]byte, 4096)
	for i := range n {
		if _, err := unix.Pwrite(fd, page, 0); err != nil {
			return i, err
		}
		if err := unix.Syncfs(fd); err != nil {
			return i, err
		}
	}
	return n, nil
}

// onDisk selects the runs that write to the disk of the load.
func onDisk(l *load) []string {
	var st unix.Stat_t
	_ = unix.Stat(l.place, &st) // the load has opened it
	return []string{"--filter", fmt.Sprintf(`device == "%d:%d"`, unix.Major(st.Dev), unix.Minor(st.Dev))}
}

// opensOthers opens files that do not exist, each with a name that was never looked up.
func opensOthers(n int, path string) (int, error) {
	for i := range n {
		name := fmt.Sprintf("%s-%d-%d", path, i, time.Now().UnixNano())
		if _, err := unix.Open(name, unix.O_RDONLY, 0); err != unix.ENOENT {
			return i, fmt.Errorf("open: %v", err)
		}
	}
	return n, nil
}
