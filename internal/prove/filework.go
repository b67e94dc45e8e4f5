package prove

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// many is more than the number of events of which a tool must not lose a single one.
const many = 1100

func fileProofs() []proof {
	const traffic = "read 512 bytes and write 256 bytes of a file"
	return []proof{
		{tool: "opensnoop", job: "open", n: many, does: "open a file, every second one missing", args: "--pid {pid} --columns all"},
		{tool: "statsnoop", job: "stat", n: many, does: "stat a file, every second one missing", args: "--tid {tid}"},
		{tool: "syncsnoop", job: "fsync", n: many, does: "fsync of a descriptor that is not open, at last of a file", args: "--pid {pid}"},
		{
			tool: "filelife", job: "create", n: many, does: "create a file, and remove it", args: "--pid {pid} -F",
			columns: "time pid tid uid comm cgroup_id age_ns creator_pid replaced file path inode device",
		},
		{
			tool: "filegone", job: "create", n: many, does: "create a file, and remove it", args: "--pid {pid}",
			columns: "time pid tid uid comm cgroup_id directory action path",
		},
		{
			tool: "filetop", job: "by file", n: many, does: traffic, args: "--pid {pid} -d {dir}",
			by: "pid tid uid comm file inode type_of_file device cgroup_id",
		},
		{tool: "fsslower", job: "files", n: many, does: traffic, args: "--tid {tid} -m 0", own: "file operation"},
		{tool: "dirtop", job: "by dir", n: many, does: traffic, args: "-d {dir}", by: "path"},
		{tool: "fsdist", job: "latencies", n: many, does: traffic, args: "--tid {tid}", by: "operation", own: "operation"},
		{
			tool: "vfsstat", job: "vfs", n: many, does: "create, write twice, read and remove a file, make and remove a directory",
			args: "--tid {tid}", by: "total",
		},
	}
}

func fileJobs() map[string]job {
	return map[string]job{
		"open":      {run: opens},
		"stat":      {run: stats},
		"fsync":     {run: fsyncs},
		"create":    {run: creates},
		"files":     {prepare: prepareFile, run: readsAndWrites(fileEvent, noSum)},
		"by file":   {prepare: prepareFile, run: readsAndWrites(noEvent, sumByFile), second: readAndWritten()},
		"by dir":    {prepare: prepareFile, run: readsAndWrites(noEvent, sumByDirectory), second: readAndWritten()},
		"latencies": {prepare: prepareFile, run: readsAndWrites(noEvent, histogramsOfFile)},
		"vfs":       {run: everyVFS},
	}
}

// readAndWritten is the second source for columns with the bytes of read and written data.
func readAndWritten() func(*worker) after {
	return accounted(writeSize-1, map[string]string{"read_bytes": "rchar", "write_bytes": "wchar"})
}

func errorOf(r row, ret int, err error) row {
	r["ret"] = ret
	if errno, ok := err.(unix.Errno); ok {
		r["ret"], r["error"] = -int(errno), unix.ErrnoName(errno)
	}
	return r
}

func opens(w *worker) error {
	paths := [2]string{w.path("exists"), w.path("missing")}
	fd, err := unix.Open(paths[0], unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return err
	}
	w.want(row{"path": paths[0], "ret": fd, "fd": fd, "errno": 0, "mode": "0640", "flags": []string{"O_WRONLY", "O_CREAT", "O_CLOEXEC"}})
	unix.Close(fd)
	for i := 1; i < w.n; i++ {
		path := paths[i%2]
		r := w.timed("", func() { fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW, 0) })
		r["path"], r["flags"], r["fd"], r["errno"] = path, []string{"O_RDONLY", "O_NOFOLLOW"}, fd, 0
		if errno, ok := err.(unix.Errno); ok {
			r["errno"] = int(errno)
		} else {
			unix.Close(fd)
		}
		w.want(errorOf(r, fd, err))
	}
	return nil
}

func stats(w *worker) error {
	paths := [2]string{w.dir, w.path("missing")}
	var st unix.Stat_t
	for i := range w.n {
		var err error
		r := w.timed("", func() { err = unix.Fstatat(unix.AT_FDCWD, paths[i%2], &st, 0) })
		r["path"], r["dirfd"], r["errno"] = paths[i%2], unix.AT_FDCWD, 0
		if errno, ok := err.(unix.Errno); ok {
			r["errno"] = int(errno)
		}
		w.want(errorOf(r, 0, err))
	}
	return nil
}

func fsyncs(w *worker) error {
	const closed = 1 << 20
	for range w.n - 1 {
		var err error
		r := w.timed("latency_ns", func() { err = unix.Fsync(closed) })
		r["syscall"], r["fd"] = "fsync", closed
		w.want(errorOf(r, 0, err))
	}
	fd, err := unix.Open(w.path("file"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, make([]byte, 4096)); err != nil {
		return err
	}
	r := w.timed("latency_ns", func() { err = unix.Fdatasync(fd) })
	r["syscall"], r["fd"], r["path"] = "fdatasync", fd, w.path("file")
	inodeColumns(r, w.path("file"))
	w.want(errorOf(r, 0, err))
	return err
}

// inodeColumns sets the columns of an inode.
func inodeColumns(r row, path string) {
	var st unix.Stat_t
	if unix.Stat(path, &st) == nil {
		r["inode"], r["device"] = st.Ino, fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	}
}

func creates(w *worker) error {
	for i := range w.n {
		name := "new" + strconv.Itoa(i)
		path := w.path(name)
		life := span{begin: now()}
		fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		born := now()
		r := row{"path": path, "directory": false, "action": "DELETE", "creator_pid": w.common["pid"], "replaced": false, "file": name}
		inodeColumns(r, path)
		unix.Close(fd)
		before := now()
		r["time"] = during(func() { err = unix.Unlink(path) })
		if err != nil {
			return err
		}
		life.end = now()
		r["age_ns"] = between(before-born, life.ns())
		w.want(r)
	}
	return nil
}

const (
	readSize  = 512
	writeSize = 256
)

func prepareFile(w *worker) error {
	fd, err := unix.Open(w.path("file"), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, make([]byte, readSize))
	return err
}

// traffic is what readsAndWrites did.
type traffic struct {
	n             int
	reads, writes durations
}

// readsAndWrites returns a job that reads and writes a file. each is called for every call, and sum at the end.
func readsAndWrites(each func(w *worker, r row, operation string, size, offset int), sum func(w *worker, t traffic)) func(*worker) error {
	return func(w *worker) error {
		fd, err := unix.Open(w.path("file"), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		t := traffic{n: w.n}
		b := make([]byte, readSize)
		for range w.n {
			r := w.timed("latency_ns", func() { _, err = unix.Pread(fd, b, 0) })
			if err != nil {
				return err
			}
			t.reads.add(r["time"].(span))
			each(w, r, "read", readSize, 0)
			r = w.timed("latency_ns", func() { _, err = unix.Pwrite(fd, b[:writeSize], writeSize) })
			if err != nil {
				return err
			}
			t.writes.add(r["time"].(span))
			each(w, r, "write", writeSize, writeSize)
		}
		sum(w, t)
		return nil
	}
}

func noEvent(*worker, row, string, int, int) {}
func noSum(*worker, traffic)                 {}

func fileEvent(w *worker, r row, operation string, size, offset int) {
	r["operation"], r["bytes"], r["offset_bytes"], r["file"], r["path"] = operation, size, offset, "file", w.path("file")
	inodeColumns(r, w.path("file"))
	w.want(r)
}

func (t traffic) columns(r row) row {
	r["reads"], r["writes"], r["read_bytes"], r["write_bytes"] = t.n, t.n, t.n*readSize, t.n*writeSize
	return r
}

func sumByFile(w *worker, t traffic) {
	r := t.columns(row{"file": "file", "type_of_file": "R"})
	inodeColumns(r, w.path("file"))
	w.want(r)
}

func sumByDirectory(w *worker, t traffic) { w.sum(t.columns(row{"path": w.dir})) }

func histogramsOfFile(w *worker, t traffic) {
	w.histogram(row{"operation": "read"}, t.reads)
	w.histogram(row{"operation": "write"}, t.writes)
}

// everyVFS does each thing that vfsstat counts n times.
func everyVFS(w *worker) error {
	file, dir := w.path("vfs"), w.path("directory")
	b := []byte("x")
	for range w.n {
		fd, err := unix.Open(file, unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		_, errWrite := unix.Pwrite(fd, b, 0)
		_, errWrite2 := unix.Pwrite(fd, b, 0)
		_, errRead := unix.Pread(fd, b, 0)
		err = errors.Join(errWrite, errWrite2, errRead, unix.Close(fd), unix.Unlink(file), unix.Mkdir(dir, 0o700), unix.Rmdir(dir))
		if err != nil {
			return err
		}
	}
	w.sum(row{"reads": w.n, "writes": 2 * w.n, "opens": w.n, "creates": w.n, "unlinks": w.n, "mkdirs": w.n, "rmdirs": w.n, "fsyncs": 0})
	return nil
}
