package fleet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// collector is an OpenTelemetry Collector that writes what it receives to a file, as OTLP's JSON.
type collector struct {
	t              *testing.T
	program, url   string
	config, output string
	process        *process
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, program: component(t, "fleet/otelcol"), config: filepath.Join(t.TempDir(), "otelcol.yaml"), output: filepath.Join(t.TempDir(), "output")}
	address := freeAddress(t)
	c.url = "http://" + address
	err := os.WriteFile(c.config, []byte(`
receivers: {otlp: {protocols: {http: {endpoint: "`+address+`"}}}}
exporters: {file: {path: "`+c.output+`", append: true, flush_interval: 100ms}}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    metrics: {receivers: [otlp], exporters: [file]}
    logs: {receivers: [otlp], exporters: [file]}
    profiles: {receivers: [otlp], exporters: [file]}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *collector) start() {
	c.t.Helper()
	c.process = startProcess(c.t, c.program, "--config="+c.config, "--feature-gates=service.profilesSupport")
	c.process.await(c.t, "the collector to be ready", func() bool { return strings.Contains(c.process.output(c.t), "Everything is ready") })
}

// received is what the collector wrote.
type received struct {
	logs     map[string]int // by process ID
	events   float64        // latest value of the counter
	profiles map[string]int // by ID
	frames   map[string]bool
}

// attribute is a KeyValue with a string or an integer.
type attribute struct {
	Key   string
	Value struct{ StringValue, IntValue string }
}

// line is one line of the file.
type line struct {
	ResourceLogs []struct {
		ScopeLogs []struct {
			LogRecords []struct {
				EventName  string
				Attributes []attribute
			}
		}
	}
	ResourceMetrics []struct {
		ScopeMetrics []struct {
			Metrics []struct {
				Name string
				Sum  struct{ DataPoints []struct{ AsInt string } }
			}
		}
	}
	ResourceProfiles []struct {
		ScopeProfiles []struct{ Profiles []struct{ ProfileID string } }
	}
	Dictionary struct{ StringTable []string }
}

func (c *collector) received() received {
	c.t.Helper()
	r := received{logs: map[string]int{}, profiles: map[string]int{}, frames: map[string]bool{}}
	file, err := os.Open(c.output)
	if os.IsNotExist(err) {
		return r
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			continue // the last line can be incomplete
		}
		r.add(&l)
	}
	if err := lines.Err(); err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (r *received) add(l *line) {
	for _, resource := range l.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, record := range scope.LogRecords {
				for _, a := range record.Attributes {
					if record.EventName == "corescope.execsnoop" && a.Key == "process.pid" {
						r.logs[a.Value.IntValue]++
					}
				}
			}
		}
	}
	for _, resource := range l.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name != "corescope.execsnoop.events" {
					continue
				}
				r.events = 0
				for _, p := range m.Sum.DataPoints {
					var n float64
					fmt.Sscan(p.AsInt, &n)
					r.events += n
				}
			}
		}
	}
	for _, resource := range l.ResourceProfiles {
		for _, scope := range resource.ScopeProfiles {
			for _, p := range scope.Profiles {
				r.profiles[p.ProfileID]++
			}
		}
	}
	for _, s := range l.Dictionary.StringTable {
		r.frames[s] = true
	}
}

// lost returns the number of items that the agent could not deliver.
func lost(t *testing.T, agent string) (n float64) {
	t.Helper()
	for _, match := range regexp.MustCompile(`(?m)^corescope_export_lost_total\{.*\} (\S+)$`).FindAllStringSubmatch(string(get(t, "http://"+agent+"/metrics")), -1) {
		var v float64
		fmt.Sscan(match[1], &v)
		n += v
	}
	return n
}

// TestCollector executes programs before, during and after a restart of the collector. Each one arrives
// as one log record, the counter has all of them, and profiles arrive once.
func TestCollector(t *testing.T) {
	needs(t, "collector", "needs an OpenTelemetry Collector")
	c := newCollector(t)
	c.start()
	agent, process := startAgent(t, "interval: 500ms\notlp: {endpoint: '"+c.url+"', metrics: true, interval: 500ms, experimental_profiles: true}\ntools:\n"+
		"  - {tool: execsnoop, args: [--comm, "+workloadName+"], export: {logs: true}}\n  - {tool: profile, args: [-F, '99', -U]}\n")
	path := filepath.Join(t.TempDir(), workloadName)
	data, err := os.ReadFile("/bin/true")
	if err == nil {
		err = os.WriteFile(path, data, 0o700)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	execute := func() {
		t.Helper()
		for range 10 {
			cmd := exec.Command(path)
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			pids = append(pids, fmt.Sprint(cmd.Process.Pid))
		}
	}
	execute()
	await(t, "the first log records", func() bool { return len(c.received().logs) == 10 })
	c.process.end(t)
	execute()
	c.start()
	execute()
	await(t, "all log records, the counter and a profile", func() bool {
		r := c.received()
		return len(r.logs) >= len(pids) && r.events >= float64(len(pids)) && len(r.profiles) > 0
	})
	if n := lost(t, agent); n != 0 {
		t.Errorf("%v items were lost", n)
	}
	process.end(t) // it sends what is left
	r := c.received()
	if len(r.logs) != len(pids) || r.events != float64(len(pids)) {
		t.Errorf("%d log records, and the counter is %v; want %d", len(r.logs), r.events, len(pids))
	}
	for _, pid := range pids {
		if r.logs[pid] != 1 {
			t.Errorf("%d log records of process %s", r.logs[pid], pid)
		}
	}
	for id, n := range r.profiles {
		if n != 1 {
			t.Errorf("profile %s arrived %d times", id, n)
		}
	}
	t.Logf("%d log records, counter %v, %d profiles with %d strings", len(r.logs), r.events, len(r.profiles), len(r.frames))
}
