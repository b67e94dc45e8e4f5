package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// promtool returns the path of promtool: from the variable PROMTOOL, the search path, or the cache of
// scripts/fetch-deb.sh. It skips the test if there is none.
func promtool(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("PROMTOOL"); path != "" {
		return path
	}
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(cache, "corescope/debian/*/prom*/usr/bin/promtool")) // the pattern is valid
	if len(found) == 0 {
		t.Skip("promtool is neither in $PROMTOOL, nor in the search path, nor in the cache of scripts/fetch-deb.sh (package promtool; in older releases, prometheus)")
	}
	return found[0]
}

// TestPromtool checks the metrics of several kinds of tools with promtool.
func TestPromtool(t *testing.T) {
	path := promtool(t)
	r := start(t, "tools:\n  - tool: runqlat\n  - tool: execsnoop\n  - tool: cachestat\n  - {tool: syscount, args: [-L]}\n")
	r.awaitReady()
	if err := exec.Command(executable(t, "agenttest")).Run(); err != nil {
		t.Fatal(err)
	}
	r.await("values of all tools", func() bool {
		s := r.scrape()
		for _, tool := range []string{"runqlat", "execsnoop", "cachestat", "syscount"} {
			if s[`corescope_tool_rows_total{tool="`+tool+`"}`] == 0 {
				return false
			}
		}
		return true
	})
	response, err := http.Get(r.url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// TestScrapesAndReloads scrapes 50 times at the same time, beside reloads and a client that never reads.
func TestScrapesAndReloads(t *testing.T) {
	const first = "tools:\n  - tool: oomkill\n"
	r := start(t, first)
	r.awaitReady()
	silent, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(r.url, "http://"), "/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := io.WriteString(silent, strings.Repeat("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 100)); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			response, err := http.Get(r.url)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
				t.Errorf("scrape: %s, %v", response.Status, err)
			}
		})
	}
	const reloads = 10
	for i := range reloads {
		r.configure(first + []string{"", "  - tool: tcpretrans\n", "  - [\n"}[i%3])
		r.reload <- os.Interrupt
	}
	wait.Wait()
	r.configure(first)
	r.reload <- os.Interrupt
	r.await("all reloads", func() bool {
		s := r.scrape()
		return s[`corescope_config_reloads_total{result="success"}`]+s[`corescope_config_reloads_total{result="failure"}`] == reloads+1
	})
	s := r.scrape()
	if s["corescope_config_last_reload_successful"] != 1 {
		t.Errorf("the metrics of reloads: %v", s)
	}
	if _, ok := s[`corescope_tool_up{tool="tcpretrans"}`]; ok {
		t.Error("a removed tool still has the metric corescope_tool_up")
	}
	if len(r.agent.all()) != 1 {
		t.Errorf("%d tools run, want 1", len(r.agent.all()))
	}
}

// faulty passes requests to a collector, except for some that it answers itself. refused counts the records
// of those that must not be sent again.
type faulty struct {
	next     *collector
	requests atomic.Int64
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch f.requests.Add(1) {
	case 1:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	case 2:
		w.WriteHeader(http.StatusServiceUnavailable)
	case 3:
		panic(http.ErrAbortHandler) // the connection breaks without an answer
	case 4:
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done() // stalls until the client gives up
	case 6:
		w.WriteHeader(http.StatusBadRequest)
	default:
		f.next.ServeHTTP(w, r)
	}
}

// TestFaultyCollector expects that each event arrives once or is counted as lost, from a collector that
// answers 429, 503 and 400, breaks the connection and stalls.
func TestFaultyCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "500")
	c := newCollector(t)
	server := &http.Server{Handler: &faulty{next: c}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { server.Close() })
	name := fmt.Sprint("fault", os.Getpid()) // another run of this test can be beside
	r := start(t, fmt.Sprintf("otlp: {endpoint: 'http://%s'}\n", listener.Addr())+
		"tools:\n  - tool: execsnoop\n    args: [--comm, "+name+"]\n    export: {logs: true}\n")
	r.awaitReady()
	path := executable(t, name)
	received := func() int {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return len(c.records)
	}
	run := func(n int) {
		t.Helper()
		for range n {
			if err := exec.Command(path).Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(20)
	r.await("records of the first request", func() bool { return received() > 0 })
	const lost = `corescope_export_lost_total{reason="export",signal="logs"}`
	before := 0
	r.await("20 records", func() bool { before = received() + int(r.scrape()[lost]); return before >= 20 })
	run(10)
	r.await("30 events", func() bool { return received()+int(r.scrape()[lost]) >= 30 })
	if sum := received() + int(r.scrape()[lost]); sum != 30 || r.scrape()[lost] == 0 {
		t.Errorf("%d records arrived, %v are lost: want 30 in all, and some lost", received(), r.scrape()[lost])
	}
	if got := r.scrape()[`corescope_tool_rows_total{tool="execsnoop"}`]; got != 30 {
		t.Errorf("%v rows, want 30", got)
	}
}
