package biolatency

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// loopDepth is the maximum number of requests that the loop driver has in flight.
const loopDepth = 128

// hold blocks writes to the disk until the returned function is called: a write to the backing file
// stops in the middle, with the inode locked, because a page of its source buffer is missing
// (userfaultfd).
func (l *loop) hold(t testing.TB) (release func()) {
	t.Helper()
	page := tooltest.NewFaultPage(t)
	var done sync.WaitGroup
	done.Go(func() {
		if _, err := unix.Pwrite(l.back, page.Memory[:1], loopSize-1); err != nil {
			t.Errorf("write to the file: %v", err)
		}
	})
	page.Await(t)
	release = sync.OnceFunc(func() {
		page.Fill(t)
		done.Wait()
	})
	t.Cleanup(release)
	return release
}

// writers are writes that wait for the disk, each in its own thread.
type writers struct {
	t     testing.TB
	disk  *loop
	n     int
	began time.Time
	done  sync.WaitGroup
}

// write starts a write of one block, and returns when its thread waits in the kernel.
func (w *writers) write(off int64) {
	w.t.Helper()
	w.begin(off)
	w.await()
}

func (w *writers) begin(off int64) {
	w.t.Helper()
	b := block(w.t)
	w.n++
	w.done.Go(func() {
		if _, err := unix.Pwrite(int(w.disk.dev.Fd()), b, off); err != nil {
			w.t.Errorf("write at %d: %v", off, err)
		}
	})
}

// await returns when all writers wait in the kernel.
func (w *writers) await() {
	w.t.Helper()
	await(w.t, func() error {
		if n := waiting(w.t); n != w.n {
			return fmt.Errorf("%d threads wait for the disk, want %d", n, w.n)
		}
		return nil
	})
}

// fill submits as many requests as the driver accepts.
func (w *writers) fill() {
	w.t.Helper()
	w.began = time.Now()
	for range loopDepth {
		w.begin(int64(w.n * stride))
	}
	w.await()
	inflight, err := os.ReadFile(w.disk.sys("inflight"))
	if f := strings.Fields(string(inflight)); err != nil || f[1] != fmt.Sprint(loopDepth) {
		w.t.Skipf("the loop driver does not accept %d requests at once: %q (%v)", loopDepth, inflight, err)
	}
}

// stay keeps all writers waiting for at least twice the returned time, within which all of them
// arrived.
func (w *writers) stay() time.Duration {
	took := time.Since(w.began)
	time.Sleep(20*time.Millisecond + 2*took) // part of the measured time
	return took
}

// waiting counts the threads of this process in uninterruptible sleep, except the one that blocks
// the disk, which is killable.
func waiting(t testing.TB) (n int) {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		stat, _ := os.ReadFile(file) // the thread may have exited
		_, state, _ := strings.Cut(string(stat), ") ")
		if strings.HasPrefix(state, "D ") {
			n++
		}
	}
	return n
}

func await(t testing.TB, is func() error) {
	t.Helper()
	err := is()
	for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); err = is() {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// above counts the values in buckets above the one that contains d.
func above(h tooltest.Row, d time.Duration) (n int) {
	buckets, _ := h["buckets"].([]any)
	for _, b := range buckets {
		if bucket := tooltest.Row(b.(map[string]any)); bucket.Num("lo") > float64(d)/float64(time.Microsecond) {
			n += int(bucket.Num("count"))
		}
	}
	return n
}

// TestHeld blocks a disk for a known time: requests that the driver had accepted waited in the
// device, the rest in the queue.
// the device, the rest in the queue.
func TestHeld(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLoop(t, 0)
	l.scheduler(t, "mq-deadline")
	const queued = 8
	var held, all time.Duration
	res := tooltest.JSON(t, Tool, []string{"--stages", "-d", l.name, "--pid", pid()}, func() {
		begin := time.Now()
		release := l.hold(t)
		w := &writers{t: t, disk: l}
		w.fill()
		for range queued {
			w.write(int64(w.n * stride))
		}
		held = w.stay()
		release()
		w.done.Wait()
		all = time.Since(begin)
	})
	for stage, long := range map[string]int{"queue": queued, "device": loopDepth, "total": queued + loopDepth} {
		h := find(t, res, map[string]string{"stage": stage})
		if n := above(h, held); n != long || h.Num("count") != queued+loopDepth || h.Num("max") > float64(all)/float64(time.Microsecond) {
			t.Errorf("%d times of %s are above %v, want %d: %v", n, stage, held, long, h)
		}
	}
	checkCounters(t, res, nil)
}

// TestMerge fills the gap between two queued requests: three writes become one request, the second.
// The kernel sets its start time to that of the first, which must not count as reuse.
func TestMerge(t *testing.T) {
	tooltest.OnHooks(t, "merge")
	l := newLoop(t, 0)
	l.scheduler(t, "mq-deadline")
	// The next request has already left the queue for the driver.
	const before = loopDepth + 1
	const first = before * stride
	var waited time.Duration
	res := tooltest.JSON(t, Tool, []string{"--stages", "-d", l.name}, func() {
		release := l.hold(t)
		w := &writers{t: t, disk: l}
		w.fill()
		w.write(loopSize - blockSize)
		w.write(first + 2*blockSize)
		w.write(first)
		w.write(first + 1*blockSize)
		waited = w.stay()
		release()
		w.done.Wait()
	})
	for _, stage := range []string{"queue", "device", "total"} {
		if h := find(t, res, map[string]string{"stage": stage}); h.Num("count") != before+1 {
			t.Errorf("%v times of %s, want %d", h.Num("count"), stage, before+1)
		}
	}
	if n := above(find(t, res, map[string]string{"stage": "queue"}), waited); n != 2 {
		t.Errorf("%d requests were queued for more than %v, want 2", n, waited)
	}
	checkCounters(t, res, map[string]int{"merges": 1})
}
