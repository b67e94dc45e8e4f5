package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// running is an agent in this process.
type running struct {
	t      *testing.T
	path   string
	agent  *Agent
	log    *safeBuffer
	reload chan os.Signal
	url    string
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mutex sync.Mutex
	b     bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.b.String()
}

// start starts an agent with this configuration and waits until it serves metrics.
func start(t *testing.T, config string) *running {
	t.Helper()
	// Costs are not measured.
	return startAgent(t, &Agent{Tools: tools.All(), schedule: schedule{every: 24 * time.Hour}}, config)
}

// startAgent starts an agent with this configuration.
func startAgent(t *testing.T, a *Agent, config string) *running {
	t.Helper()
	tooltest.Root(t)
	r := &running{t: t, path: filepath.Join(t.TempDir(), "agent.yaml"), log: &safeBuffer{}, reload: make(chan os.Signal)}
	r.configure(config)
	r.agent = a
	a.Path, a.ErrOut = r.path, r.log
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.agent.Run(ctx, r.reload) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
		if t.Failed() {
			t.Logf("messages of the agent:\n%s", r.log)
		}
	})
	address := regexp.MustCompile(`http://\S+`)
	r.await("the address of the metrics", func() bool {
		r.url = address.FindString(r.log.String())
		return r.url != ""
	})
	return r
}

func (r *running) configure(config string) {
	r.t.Helper()
	next := r.path + ".next" // the agent reads the old or the new configuration, not a part
	err := os.WriteFile(next, []byte("listen: 127.0.0.1:0\ninterval: 200ms\nmax_cpu: 10000%\n"+config), 0o600)
	if err == nil {
		err = os.Rename(next, r.path)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// await waits until a condition holds.
func (r *running) await(what string, holds func() bool) {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("waited two minutes for %s; messages of the agent:\n%s", what, r.log)
		}
	}
}

func (r *running) awaitReady() {
	r.t.Helper()
	r.await("all tools to be ready", func() bool { return r.agent.Ready() == nil })
}

// scrape returns the samples of /metrics.
func (r *running) scrape() map[string]float64 {
	r.t.Helper()
	resp, err := http.Get(r.url)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("scrape: %s, %v", resp.Status, err)
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if i := strings.LastIndexByte(strings.TrimSpace(line), ' '); i > 0 && !strings.HasPrefix(line, "#") {
			name, text = strings.TrimSpace(line)[:i], strings.TrimSpace(line)[i+1:]
		}
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			samples[name] = v
		}
	}
	return samples
}

// executable copies /bin/true to a file of this name.
func executable(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	data, err := os.ReadFile("/bin/true")
	if err == nil {
		err = os.WriteFile(path, data, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestCounts executes a program, and expects exactly these events in the metrics, also after a reload
// that changes another tool.
func TestCounts(t *testing.T) {
	const execs = "tools:\n  - {tool: execsnoop, args: [--comm, agenttest]}\n"
	r := start(t, execs+"  - tool: oomkill\n")
	r.awaitReady()
	path := executable(t, "agenttest")
	repeat := func(n int) {
		t.Helper()
		for range n {
			if err := exec.Command(path).Run(); err != nil {
				t.Fatal(err)
			}
		}
	}
	const metric = "corescope_execsnoop_events_total"
	sum := func() (n float64) {
		for name, v := range r.scrape() {
			if name == metric || strings.HasPrefix(name, metric+"{") {
				n += v
			}
		}
		return n
	}
	repeat(20)
	r.await("20 events", func() bool { return sum() >= 20 })
	before := r.agent.all()[0]

	r.configure(execs + "  - tool: tcpretrans\n")
	r.reload <- os.Interrupt
	r.await("the reload", func() bool { return strings.Contains(r.log.String(), "reloaded") })
	r.awaitReady()
	if r.agent.all()[0] != before {
		t.Error("the reload restarted a tool that it did not change")
	}
	repeat(5)
	r.await("25 events", func() bool { return sum() >= 25 })

	r.configure(execs + "  - tool: nosuch\n")
	r.reload <- os.Interrupt
	r.await("the error of the reload", func() bool { return strings.Contains(r.log.String(), "was not reloaded") })
	samples := r.scrape()
	if samples["corescope_config_last_reload_successful"] != 0 {
		t.Errorf("an invalid configuration is reported as valid: %v", samples)
	}
	if !strings.Contains(r.log.String(), r.path+":6:5: usage: unknown tool \"nosuch\"") {
		t.Error("the message does not name the place of the error")
	}
	if got := len(r.agent.all()); got != 2 {
		t.Errorf("%d tools run, want 2", got)
	}
	if n := sum(); n != 25 {
		t.Errorf("%v events, want 25", n)
	}
}

// TestFailure runs a tool that cannot start beside one that can.
func TestFailure(t *testing.T) {
	r := start(t, "tools:\n  - {tool: funccount, args: ['c:corescope_no_such_function']}\n  - tool: oomkill\n")
	const failures = `corescope_tool_failures_total{tool="funccount"}`
	r.await("a failure of funccount", func() bool { return r.scrape()[failures] > 0 })
	r.await("oomkill", func() bool { return r.scrape()[`corescope_tool_up{tool="oomkill"}`] == 1 })
	if err := r.agent.Ready(); err == nil || !strings.Contains(err.Error(), "funccount") || strings.Contains(err.Error(), "oomkill") {
		t.Errorf("ready: %v", err)
	}
	if !strings.Contains(r.log.String(), "next start in") {
		t.Error("the next attempt is not reported")
	}
}

// TestHistogram expects classic buckets, sum and count of run queue latencies that agree.
func TestHistogram(t *testing.T) {
	r := start(t, "tools:\n  - tool: runqlat\n")
	r.awaitReady()
	const name = "corescope_runqlat_duration_seconds"
	r.await("values", func() bool { return r.scrape()[name+"_count"] > 100 })
	s := r.scrape()
	if last := s[name+`_bucket{le="+Inf"}`]; last != s[name+"_count"] {
		t.Errorf("the last bucket has %v of %v values", last, s[name+"_count"])
	}
	if sum := s[name+"_sum"]; !(sum > 0 && sum < s[name+"_count"]*10) {
		t.Errorf("the sum of %v values is %v s", s[name+"_count"], sum)
	}
	for below := -20; below < 6; below++ {
		low, high := bucket(name, below), bucket(name, below+1)
		if _, ok := s[low]; !ok || s[low] > s[high] {
			t.Errorf("%s is %v, %s is %v", low, s[low], high, s[high])
		}
	}
}

// bucket returns the sample of the classic bucket with the bound 2^exponent seconds.
func bucket(name string, exponent int) string {
	return fmt.Sprintf("%s_bucket{le=%q}", name, strconv.FormatFloat(math.Ldexp(1, exponent), 'g', -1, 64))
}
