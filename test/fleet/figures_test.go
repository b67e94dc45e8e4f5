package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/agent"
	"github.com/corescope/corescope/internal/tooltest"
)

// enableStats enables the statistics of BPF programs until the test ends, and returns the times of those that
// are loaded already.
func enableStats(t *testing.T) map[ebpf.ProgramID]time.Duration {
	t.Helper()
	others, err := programTimes()
	if err != nil {
		t.Fatal(err)
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stats.Close() })
	return others
}

// TestFigures prints the figures of docs/fleet.md: what the agent with its default configuration costs under
// a fixed load, and the size of its metrics.
func TestFigures(t *testing.T) {
	needs(t, "figures", "measures, and tests nothing")
	tooltest.Root(t)
	if _, err := agentProgram(); err != nil { // not a part of the time to the first metric
		t.Fatal(err)
	}
	others := enableStats(t)

	config := regexp.MustCompile(`(?m)^(listen|max_cpu):.*\n`).ReplaceAllString(string(agent.DefaultConfig), "")
	config = strings.Replace(config, "interval: 10s", "interval: 1s", 1)
	begin := time.Now()
	address, process := startAgent(t, config)
	url := "http://" + address + "/metrics"
	t.Logf("| hooks of 7 tools attached after | %d ms |", time.Since(begin).Milliseconds())
	await(t, "the first histogram", func() bool {
		return strings.Contains(string(get(t, url)), "corescope_runqlat_duration_seconds_count")
	})
	t.Logf("| first histogram after (interval 1 s) | %d ms |", time.Since(begin).Milliseconds())
	idle := processCPU(t, process.Process.Pid)
	time.Sleep(20 * time.Second)
	t.Logf("| CPU time of the agent without load | %.2f %% of a CPU |", float64(processCPU(t, process.Process.Pid)-idle)/20e9*100)

	cpu, begin := processCPU(t, process.Process.Pid), time.Now()
	before, err := programTimes()
	if err != nil {
		t.Fatal(err)
	}
	work(t)
	execute(t, 1000)
	connect(t, 3000)
	time.Sleep(2 * time.Second) // two intervals
	after, err := programTimes()
	if err != nil {
		t.Fatal(err)
	}
	var programs time.Duration
	for id, d := range after {
		if _, isOther := others[id]; !isOther {
			programs += d - before[id]
		}
	}
	t.Logf("| load | %d reads, 1,000 execs, 3,000 connections in %.1f s |", readCount, time.Since(begin).Seconds())
	t.Logf("| CPU time of the agent | %.0f ms |", float64(processCPU(t, process.Process.Pid)-cpu)/1e6)
	t.Logf("| CPU time of its programs | %.0f ms |", float64(programs)/1e6)
	t.Logf("| private memory | %.1f MB |", float64(privateKB(t, process.Process.Pid))/1000)
	text := get(t, url)
	t.Logf("| series | %d, of them %d about the agent itself |", series(text, ""), series(text, "corescope_(agent|tool|metric|export|config)_"))
	for _, how := range [][2]string{{"text", ""}, {"protobuf", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}} {
		plain, packed := scrapeSize(t, url, how[1], "identity"), scrapeSize(t, url, how[1], "gzip")
		t.Logf("| bytes per scrape, %s | %d, with gzip %d |", how[0], plain, packed)
	}
}

// TestIdle prints what 15 tools cost in one agent, without a load of this test. Other processes of the machine
// are observed too.
func TestIdle(t *testing.T) {
	needs(t, "figures", "measures, and tests nothing")
	tooltest.Root(t)
	others := enableStats(t)
	config := "tools:\n"
	tools := []string{
		"runqlat", "biolatency", "tcplife", "tcpretrans", "oomkill", "cachestat", "execsnoop", "biosnoop", "bitesize",
		"vfsstat", "syscount", "softirqs", "hardirqs", "mountsnoop", "tcpconnect",
	}
	for _, name := range tools {
		config += "  - tool: " + name + "\n"
	}
	_, process := startAgent(t, config)
	before, err := programTimes()
	if err != nil {
		t.Fatal(err)
	}
	cpu, begin := processCPU(t, process.Process.Pid), time.Now()
	time.Sleep(60 * time.Second)
	after, err := programTimes()
	if err != nil {
		t.Fatal(err)
	}
	var programs time.Duration
	for id, d := range after {
		if _, isOther := others[id]; !isOther {
			programs += d - before[id]
		}
	}
	elapsed := time.Since(begin)
	t.Logf("| %d tools, CPU time of the agent | %.2f %% of a CPU |", len(tools), float64(processCPU(t, process.Process.Pid)-cpu)/float64(elapsed)*100)
	t.Logf("| CPU time of their programs | %.2f %% of a CPU |", float64(programs)/float64(elapsed)*100)
	t.Logf("| private memory | %.1f MB |", float64(privateKB(t, process.Process.Pid))/1000)
}

// series counts the samples whose name begins with the expression.
func series(text []byte, prefix string) int {
	return len(regexp.MustCompile(`(?m)^`+prefix+`[a-z].* `).FindAll(text, -1))
}

func scrapeSize(t *testing.T, url, accept, encoding string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("Accept-Encoding", encoding)
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return len(body)
}

// programTimes returns the run time of each BPF program.
func programTimes() (map[ebpf.ProgramID]time.Duration, error) {
	times := map[ebpf.ProgramID]time.Duration{}
	for id, err := ebpf.ProgramGetNextID(0); ; id, err = ebpf.ProgramGetNextID(id) {
		if errors.Is(err, os.ErrNotExist) {
			return times, nil
		}
		if err != nil {
			return nil, err
		}
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // it was unloaded
		}
		stats, err := p.Stats()
		p.Close()
		if err != nil {
			return nil, err
		}
		times[id] = stats.Runtime
	}
}

// processCPU returns the CPU time of a process in ns.
func processCPU(t *testing.T, pid int) (ns int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	for _, ticks := range fields[11:13] { // utime and stime, in 1/100 s
		n, err := strconv.ParseInt(ticks, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ns += n * 1e7
	}
	return ns
}

func execute(t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := exec.Command("/bin/true").Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// connect makes connections over loopback.
func connect(t *testing.T, n int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for range n {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, c)
		c.Close()
	}
}
