package agent

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sumOf adds up the series of a metric.
func sumOf(samples map[string]float64, name string) (sum float64) {
	for series, v := range samples {
		if series == name || strings.HasPrefix(series, name+"{") {
			sum += v
		}
	}
	return sum
}

// TestOpens opens a file that does not exist as fast as two threads can. Each call is in the counter or
// reported as lost, and the agent answers scrapes meanwhile.
func TestOpens(t *testing.T) {
	const path = "/corescope-agent-test/none"
	r := start(t, "tools:\n  - {tool: opensnoop, args: [--path, "+path+"]}\n")
	r.awaitReady()
	var calls atomic.Uint64
	var threads sync.WaitGroup
	begin := time.Now()
	stop := make(chan struct{})
	for range 2 {
		threads.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for range 1000 {
					unix.Open(path, unix.O_RDONLY, 0)
				}
				calls.Add(1000)
			}
		})
	}
	for range 20 {
		r.scrape()
		time.Sleep(100 * time.Millisecond)
	}
	close(stop)
	threads.Wait()
	elapsed := time.Since(begin)
	var events, lost float64
	r.await("all calls", func() bool {
		s := r.scrape()
		events, lost = sumOf(s, "corescope_opensnoop_events_total"), sumOf(s, "corescope_tool_lost_total")
		return events+lost >= float64(calls.Load())
	})
	if events+lost != float64(calls.Load()) || events == 0 {
		t.Errorf("%v events and %v lost ones, want %d in all", events, lost, calls.Load())
	}
	t.Logf("%d calls, %.0f per second; %v events, %v lost", calls.Load(), float64(calls.Load())/elapsed.Seconds(), events, lost)
}

// TestOpenStorm makes a million opens without a pause on more threads than CPUs, which are more than the agent
// can read: each is in the counter or reported as lost. An empty path fails before the kernel looks for a file.
func TestOpenStorm(t *testing.T) {
	const name, threads, n = "openstorm", 4, 250_000
	r := start(t, "tools:\n  - {tool: opensnoop, args: [--comm, "+name+"]}\n")
	r.awaitReady()
	var done sync.WaitGroup
	begin := time.Now()
	for range threads {
		done.Go(func() {
			runtime.LockOSThread() // the thread ends with the goroutine, because it has another name
			rename(t, name)
			var empty byte
			for range n {
				unix.RawSyscall6(unix.SYS_OPENAT, 0, uintptr(unsafe.Pointer(&empty)), unix.O_RDONLY, 0, 0, 0)
			}
			rename(t, "other")
		})
	}
	done.Wait()
	elapsed := time.Since(begin)
	const all = threads * n
	var events, lost float64
	r.await("all calls", func() bool {
		s := r.scrape()
		events, lost = sumOf(s, "corescope_opensnoop_events_total"), sumOf(s, "corescope_tool_lost_total")
		return events+lost >= all
	})
	t.Logf("%d calls, %.0f per second; %v events, %v lost", all, all/elapsed.Seconds(), events, lost)
	if events+lost != all || events == 0 {
		t.Errorf("%v events and %v lost ones, want %d in all", events, lost, all)
	}
}

// rename gives the current thread another name.
func rename(t *testing.T, name string) {
	p, err := unix.BytePtrFromString(name)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(p)), 0, 0, 0)
	}
	if err != nil {
		t.Errorf("name the thread %s: %v", name, err)
	}
}
