package agent

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"

	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"
)

// collector is a server that receives OTLP.
type collector struct {
	*httptest.Server
	t       *testing.T
	mutex   sync.Mutex
	records []string // event name and attributes
	events  int64    // latest value of corescope.execsnoop.events
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		c.t.Error(err)
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	switch r.URL.Path {
	case "/v1/logs":
		c.addLogs(data)
	case "/v1/metrics":
		c.addMetrics(data)
	default:
		c.t.Errorf("request for %s", r.URL.Path)
	}
}

func (c *collector) addLogs(data []byte) {
	var request logs.LogsData
	if err := proto.Unmarshal(data, &request); err != nil {
		c.t.Error(err)
	}
	for _, resource := range request.ResourceLogs {
		for _, scope := range resource.ScopeLogs {
			for _, r := range scope.LogRecords {
				text := r.EventName
				for _, a := range r.Attributes {
					text += fmt.Sprintf(" %s=%v", a.Key, a.Value.Value)
				}
				c.records = append(c.records, text)
			}
		}
	}
}

func (c *collector) addMetrics(data []byte) {
	var request metrics.MetricsData
	if err := proto.Unmarshal(data, &request); err != nil {
		c.t.Error(err)
	}
	for _, resource := range request.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name == "corescope.execsnoop.events" {
					c.events = 0
					for _, p := range m.GetSum().DataPoints {
						c.events += p.GetAsInt()
					}
				}
			}
		}
	}
}

// TestCollector expects a log record for each event, without arguments and paths, and the metric.
func TestCollector(t *testing.T) {
	c := newCollector(t)
	r := start(t, "otlp: {endpoint: '"+c.URL+"', metrics: true, interval: 100ms}\n"+
		"tools:\n  - tool: execsnoop\n    args: [--comm, agenttest]\n    export: {logs: true}\n")
	r.awaitReady()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%d records, and the metric is %d", len(c.records), c.events)
		}
	})
	path := executable(t, "agenttest")
	for range 20 {
		if err := exec.Command(path, "secret").Run(); err != nil {
			t.Fatal(err)
		}
	}
	r.await("20 records and the metric", func() bool {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return len(c.records) >= 20 && c.events >= 20
	})
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.records) != 20 || c.events != 20 {
		t.Errorf("%d records, and the metric is %d; want 20", len(c.records), c.events)
	}
	for _, record := range c.records {
		if !strings.HasPrefix(record, "corescope.execsnoop ") || !strings.Contains(record, "thread.name=&{agenttest}") ||
			!strings.Contains(record, "process.pid=") || strings.Contains(record, "secret") || strings.Contains(record, path) {
			t.Errorf("record %q", record)
		}
	}
}
