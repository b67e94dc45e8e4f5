package prove

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

func blockProofs() []proof {
	const reads = "read 4096 bytes of a file from the disk (O_DIRECT)"
	return []proof{
		{tool: "biosnoop", job: "requests", n: 200, does: reads, async: true, args: "--pid {pid}"},
		{tool: "bitesize", job: "sizes", n: 200, does: reads, async: true, args: "--pid {pid}", by: "total"},
		{tool: "biotop", job: "request sums", n: 200, does: reads, async: true, args: "--pid {pid}", by: "pid comm uid op disk"},
		{tool: "biolatency", job: "latencies of requests", n: 200, does: reads, async: true, args: "--pid {pid}", by: "total"},
	}
}

func blockJobs() map[string]job {
	return map[string]job{
		"requests":              {prepare: prepareBlocks, run: directReads(requestRow, nil), second: both(accounted(0, map[string]string{"bytes": "read_bytes"}), diskStats("rows"))},
		"sizes":                 {prepare: prepareBlocks, run: directReads(nil, sizes), second: diskStats("count")},
		"request sums":          {prepare: prepareBlocks, run: directReads(nil, requestSums), second: both(accounted(0, map[string]string{"bytes": "read_bytes"}), diskStats("ios"))},
		"latencies of requests": {prepare: prepareBlocks, run: directReads(nil, requestLatencies), second: diskStats("count")},
	}
}

const block = 4096

// prepareBlocks writes a file to the disk.
func prepareBlocks(w *worker) error {
	if diskOf(w.dir) == "" {
		return fmt.Errorf("%s is on no disk of its own (set TMPDIR to a directory on a disk)", w.dir)
	}
	f, err := os.Create(w.path("blocks"))
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 16*block)); err != nil {
		return fmt.Errorf("write file: %w", err)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("write file to the disk: %w", err)
	}
	fd, err := unix.Open(f.Name(), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open file for direct I/O: %w", err)
	}
	return unix.Close(fd)
}

// diskOf returns the name of the disk that holds a path, "" if it is not on a disk.
func diskOf(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	dir, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, "partition")); err == nil {
		dir = filepath.Dir(dir)
	}
	if strings.HasPrefix(filepath.Base(dir), "dm-") || strings.HasPrefix(filepath.Base(dir), "md") {
		return "" // the requests are those of the disks below
	}
	return filepath.Base(dir)
}

func directReads(each func(w *worker, r row), sum func(w *worker, all durations)) func(*worker) error {
	return func(w *worker) error {
		// A new access time changes the inode, for which a full journal is flushed: a request of this thread.
		fd, err := unix.Open(w.path("blocks"), unix.O_RDONLY|unix.O_DIRECT|unix.O_NOATIME|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		buffer := aligned()
		var all durations
		for i := range w.n {
			r := w.timed("latency_ns", func() { _, err = unix.Pread(fd, buffer, int64(i%16)*block) })
			if err != nil {
				return err
			}
			all.add(r["time"].(span))
			if each != nil {
				each(w, r)
			}
		}
		if sum != nil {
			sum(w, all)
		}
		return nil
	}
}

// aligned returns a block whose address is a multiple of its size.
func aligned() []byte {
	b := make([]byte, 2*block)
	return b[block-int(uintptr(unsafe.Pointer(&b[0]))%block):][:block]
}

func requestRow(w *worker, r row) {
	w.want(r.with(row{"bytes": block, "status": 0, "disk": diskOf(w.dir)}))
}

func sizes(w *worker, _ durations) {
	w.sum(row{"count": w.n, "sum": w.n * block / 1024, "min": block / 1024, "max": block / 1024, "buckets": consistent})
}

func requestSums(w *worker, all durations) {
	w.sum(row{
		"pid": w.common["pid"], "comm": w.common["comm"], "uid": w.common["uid"], "disk": diskOf(w.dir), "ios": w.n, "bytes": w.n * block, "errors": 0,
		"total_ns": all.total(),
	})
}

func requestLatencies(w *worker, all durations) {
	w.histogram(row{}, all)
}
