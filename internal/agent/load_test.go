package agent

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
