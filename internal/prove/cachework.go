package prove

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func cacheProofs() []proof {
	const (
		writes = "write 4096 bytes to a file, and again after fsync"
		args   = "--tid {tid} --columns +added,+dirtied"
	)
	return []proof{
		{tool: "cachestat", job: "cached pages", n: 200, does: writes, args: args, by: "total"},
		{tool: "cachetop", job: "cached pages by task", n: 200, does: writes, args: args, by: "pid uid comm cgroup_id"},
	}
}

func cacheJobs() map[string]job {
	return map[string]job{
		"cached pages":         {run: cachePages(func(w *worker, r row) { w.sum(r) })},
		"cached pages by task": {run: cachePages(func(w *worker, r row) { w.want(r); delete(r, "tid") })},
	}
}

// cachePages returns a job that writes to pages so far from each other that each is in a folio of its own, and again
// when they are on the disk. note notes how many folios were added and became dirty. Blocks with metadata are added
// too, some for hundreds of pages.
func cachePages(note func(w *worker, r row)) func(*worker) error {
	return func(w *worker) error {
		const counter = "write_bytes"
		before, hasCounter := fieldsOf(w.taskFile("io"))[counter]
		if err := w.writeTwice(w.path("pages")); err != nil {
			return err
		}
		n := int64(w.n)
		dirty := (fieldsOf(w.taskFile("io"))[counter] - before) / int64(os.Getpagesize())
		if hasCounter && dirty < 2*n {
			return notHereError{fmt.Errorf("the file system of %s has no dirty pages (set TMPDIR to a directory on a disk)", w.dir)}
		}
		note(w, row{"added": between(n, n+n/2), "dirtied": between(2*n, 2*n+n/2)})
		if hasCounter {
			w.total("dirtied", between(2*n, dirty), "the kernel's I/O accounting of the thread (/proc/PID/task/TID/io: "+counter+"), in pages")
		}
		return nil
	}
}

// writeTwice creates a file and writes its pages, and again when they are on the disk.
func (w *worker) writeTwice(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("create file: %w", err)
	}
	return errors.Join(w.writePages(f), w.writePages(f), f.Close())
}

func (w *worker) writePages(f *os.File) error {
	const distance = 64 << 10
	page := make([]byte, block)
	for i := range w.n {
		if _, err := unix.Pwrite(int(f.Fd()), page, int64(i)*distance); err != nil {
			return fmt.Errorf("write file: %w", err)
		}
	}
	if err := unix.Fsync(int(f.Fd())); err != nil {
		return fmt.Errorf("write file to the disk: %w", err)
	}
	return nil
}
