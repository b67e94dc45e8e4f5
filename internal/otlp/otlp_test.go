package otlp

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/metric"
)

// collector accepts requests, and decodes them with the definitions of OpenTelemetry.
type collector struct {
	t      *testing.T
	answer func(w http.ResponseWriter) bool // false if it has answered

	mutex   sync.Mutex
	logs    []*logs.ResourceLogs
	metrics []*metrics.ResourceMetrics
	sizes   []int
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, zerr := gzip.NewReader(strings.NewReader(string(body)))
		if err = errors.Join(err, zerr); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" || r.Method != "POST" {
		c.t.Errorf("request %s %v: %v", r.Method, r.Header, err)
	}
	if c.answer != nil && !c.answer(w) {
		return
	}
	c.sizes = append(c.sizes, len(body))
	switch r.URL.Path {
	case "/v1/logs":
		var data logs.LogsData
		c.decode(body, &data)
		c.logs = append(c.logs, data.ResourceLogs...)
	case "/v1/metrics":
		var data metrics.MetricsData
		c.decode(body, &data)
		c.metrics = append(c.metrics, data.ResourceMetrics...)
	default:
		c.t.Errorf("request for %s", r.URL)
	}
}

func (c *collector) decode(body []byte, m proto.Message) {
	if err := (proto.UnmarshalOptions{}).Unmarshal(body, m); err != nil {
		c.t.Error(err)
	}
	if again, err := proto.Marshal(m); err != nil || proto.Size(m) != len(body) {
		c.t.Errorf("%d bytes, %d when encoded again (%v): fields are unknown or not in the usual form", len(body), len(again), err)
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		c.t.Errorf("unknown fields in %v", m)
	}
}

func (c *collector) records() (all []*logs.LogRecord) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, r := range c.logs {
		for _, s := range r.ScopeLogs {
			all = append(all, s.LogRecords...)
		}
	}
	return all
}

// points returns the data points by metric and attributes.
func (c *collector) points() map[string]any {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	out := map[string]any{}
	for _, r := range c.metrics {
		for _, s := range r.ScopeMetrics {
			for _, m := range s.Metrics {
				for _, p := range append(m.GetSum().GetDataPoints(), m.GetGauge().GetDataPoints()...) {
					out[m.Name+render(p.Attributes)] = p
				}
				for _, p := range m.GetExponentialHistogram().GetDataPoints() {
					out[m.Name+render(p.Attributes)] = p
				}
			}
		}
	}
	return out
}

// render renders attributes as {name=value}.
func render(attributes []*common.KeyValue) string {
	text := "{"
	for _, a := range attributes {
		text += a.Key + "=" + renderValue(a.Value) + ","
	}
	return strings.TrimSuffix(text, ",") + "}"
}

func renderValue(v *common.AnyValue) string {
	switch v := v.Value.(type) {
	case *common.AnyValue_StringValue:
		return fmt.Sprintf("%q", v.StringValue)
	case *common.AnyValue_BytesValue:
		return fmt.Sprintf("%x", v.BytesValue)
	case *common.AnyValue_ArrayValue:
		var all []string
		for _, e := range v.ArrayValue.Values {
			all = append(all, renderValue(e))
		}
		return fmt.Sprint(all)
	case *common.AnyValue_IntValue:
		return fmt.Sprint(v.IntValue)
	case *common.AnyValue_DoubleValue:
		return fmt.Sprint(v.DoubleValue)
	case *common.AnyValue_BoolValue:
		return fmt.Sprint(v.BoolValue)
	}
	return "?"
}

func serve(t *testing.T, c *collector) string {
	t.Helper()
	c.t = t
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return server.URL
}

func environment(variables ...string) func(string) string {
	return func(name string) string {
		for _, v := range variables {
			if value, ok := strings.CutPrefix(v, name+"="); ok {
				return value
			}
		}
		return ""
	}
}

func config(t *testing.T, url string, signal Signal) Config {
	t.Helper()
	c, err := FromEnvironment(signal, environment("OTEL_EXPORTER_OTLP_ENDPOINT="+url))
	if err != nil {
		t.Fatal(err)
	}
	c.Report = func(err error) { t.Log(err) }
	return c
}

func closeIt(t *testing.T, c interface{ Close(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

func newLogs(t *testing.T, c Config, resource ...Attribute) *Logs {
	t.Helper()
	l, err := NewLogs(c, resource, "v1")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLogRecord(t *testing.T) {
	c := &collector{}
	l := newLogs(t, config(t, serve(t, c), SignalLogs), String("service.name", "corescope"), String("host.name", "h\xff"))
	at := time.Unix(1_700_000_000, 123456789)
	l.Emit(&Record{
		Event: "corescope.execsnoop", Time: at, Observed: at.Add(time.Second), Body: "text\xff",
		Attributes: []Attribute{
			Int("process.pid", 7), Int("negative", -7), Uint("large", math.MaxUint64), Uint("small", 8), Float("f", 0.5), Bool("yes", true), Bool("no", false),
			String("thread.name", "sh"), String("empty", ""), String("file.path", "/a\xff\xfe/b"), Strings("process.command_args", []string{"sh", "-c", ""}),
			Strings("none", nil), Strings("bad", []string{"a", "\xff"}),
		},
	})
	l.Emit(&Record{Event: "corescope.lost", Time: at, Observed: at})
	closeIt(t, l)
	got := c.records()
	if len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
	r := got[0]
	const attributes = `{process.pid=7,negative=-7,large="18446744073709551615",small=8,f=0.5,yes=true,no=false,` +
		`thread.name="sh",empty="",file.path="/a�/b",file.path_bytes=2f61fffe2f62,process.command_args=["sh" "-c" ""],` +
		`none=[],bad=["a" "�"],bad_bytes=[61 ff]}`
	if render(r.Attributes) != attributes {
		t.Errorf("attributes\n%s, want\n%s", render(r.Attributes), attributes)
	}
	if r.EventName != "corescope.execsnoop" || r.TimeUnixNano != 1_700_000_000_123456789 || r.ObservedTimeUnixNano != 1_700_000_001_123456789 ||
		r.GetBody().GetStringValue() != "text\uFFFD" || r.SeverityNumber != 0 {
		t.Errorf("record %v", r)
	}
	if got[1].EventName != "corescope.lost" || got[1].Body != nil || got[1].Attributes != nil {
		t.Errorf("record %v", got[1])
	}
	resource, scope := c.logs[0].Resource, c.logs[0].ScopeLogs[0].Scope
	if text := render(resource.Attributes); text != `{service.name="corescope",host.name="h�",host.name_bytes=68ff}` || scope.Name != "corescope" || scope.Version != "v1" {
		t.Errorf("resource %s, scope %v", text, scope)
	}
	if s := l.Stats(); s.Accepted != 2 || s.Lost != 0 || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
	l.Emit(&Record{Event: "late"})
	if s := l.Stats(); s.Lost != 1 {
		t.Errorf("%+v", s)
	}
}

// TestLogsArriveWithoutClose checks that a record does not wait for others forever.
func TestLogsArriveWithoutClose(t *testing.T) {
	c := &collector{}
	l := newLogs(t, config(t, serve(t, c), SignalLogs))
	for i := range 3 {
		l.Emit(&Record{Event: fmt.Sprint(i), Time: time.Now()})
		for len(c.records()) != i+1 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	closeIt(t, l)
}

// TestLogsAreCounted sends records from several goroutines, in many requests, to a collector that
// fails, rejects some and has a queue that is too small.
func TestLogsAreCounted(t *testing.T) {
	refused, requests := 0, 0
	c := &collector{answer: func(w http.ResponseWriter) bool {
		requests++
		switch requests % 6 {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return false
		case 2: // partial_success with 3 rejected records
			refused += 3
			_, _ = w.Write(appendMessage(nil, 1, appendString(appendVarint(nil, 1, 3), 2, "too old")))
			return true
		case 3: // partial_success without rejected records is a warning
			_, _ = w.Write(appendMessage(nil, 1, appendString(nil, 2, "slow down")))
		}
		return true
	}}
	o := config(t, serve(t, c), SignalLogs)
	o.MaxBytes = 3 << 20
	l := newLogs(t, o)
	const each = 3000
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range each {
				l.Emit(&Record{Event: "x", Time: time.Now(), Attributes: []Attribute{String("a", strings.Repeat("x", i%1500))}})
			}
		})
	}
	group.Wait()
	closeIt(t, l)
	s := l.Stats()
	t.Logf("%+v, sizes %v", s, c.sizes)
	if got := len(c.records()); s.Accepted+s.Lost != 4*each || got-refused != int(s.Accepted) || refused == 0 {
		t.Errorf("the collector has %d records and rejected %d of them: %+v", got, refused, s)
	}
	for _, size := range c.sizes {
		if size > maxRequest+10_000 {
			t.Errorf("request of %d bytes", size)
		}
	}
}

func TestLargeRecord(t *testing.T) {
	c := &collector{}
	o := config(t, serve(t, c), SignalLogs)
	o.MaxBytes = 2 << 20
	l := newLogs(t, o)
	for _, size := range []int{10, maxRequest * 2, 10, 3 << 20, 10} {
		l.Emit(&Record{Event: "x", Attributes: []Attribute{String("a", strings.Repeat("x", size))}})
	}
	closeIt(t, l)
	if s := l.Stats(); s.Accepted != 4 || s.Lost != 1 || len(c.records()) != 4 {
		t.Errorf("%+v", s)
	}
}

func TestEmitDoesNotAllocate(t *testing.T) {
	l := newLogs(t, Config{Endpoint: "http://127.0.0.1:1/", MaxBytes: 1 << 20})
	attributes := []Attribute{Int("process.pid", 7), String("thread.name", "sh"), String("file.path", "/etc/passwd")}
	r := Record{Event: "corescope.opensnoop", Time: time.Now(), Attributes: attributes}
	for range 20_000 {
		l.Emit(&r)
	}
	if n := testing.AllocsPerRun(100_000, func() { l.Emit(&r) }); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = l.Close(ctx)
	if s := l.Stats(); s.Lost != 120_001 {
		t.Errorf("%+v", s)
	}
}

func BenchmarkEmit(b *testing.B) {
	l, err := NewLogs(Config{Endpoint: "http://127.0.0.1:1/"}, nil, "v1")
	if err != nil {
		b.Fatal(err)
	}
	attributes := []Attribute{
		Int("process.pid", 7), String("thread.name", "sh"), String("file.path", "/etc/passwd"), Int("corescope.fd", 3),
		String("container.name", "web"), String("k8s.namespace.name", "default"),
	}
	b.ReportAllocs()
	for b.Loop() {
		l.Emit(&Record{Event: "corescope.opensnoop", Time: time.Now(), Attributes: attributes})
	}
}

func TestMetrics(t *testing.T) {
	created := time.Unix(1_700_000_000, 0)
	store := metric.NewStore(metric.Options{MaxSeries: 3, Now: func() time.Time { return created }})
	d := func(unit metric.Unit, labels []string, name ...string) metric.Description {
		return metric.Description{Name: name, Unit: unit, Help: "Help.", Labels: labels}
	}
	events, err := store.Counter(d("{event}", []string{"comm", "pod", "container"}, "opensnoop", "events"))
	cpu, err2 := store.Counter(d(metric.Seconds, nil, "cpu"))
	gauge, err3 := store.Gauge(d(metric.Bytes, nil, "memory"))
	h, err4 := store.Histogram(d(metric.Seconds, []string{"container"}, "runqlat", "duration"))
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	events.Add(3, "sh\xff", "p", "c")
	events.Add(4, "", "", "c")
	events.Add(5, "x", "", "")
	events.Add(6, "y", "", "")
	cpu.AddFloat(1.5)
	gauge.Set(-2)
	h.Add(&histogram.Exponential{Schema: 3, Zero: 2, Sum: 3.5, Buckets: map[int]uint64{-3: 4, 0: 5, 1: 6}}, "c")
	h.Exemplar(metric.Exemplar{Value: 1, Time: created, Labels: []metric.Label{{Name: "pid", Value: "7"}}}, "c")
	h.Add(&histogram.Exponential{Schema: 3}, "empty")

	c := &collector{}
	m, err := NewMetrics(config(t, serve(t, c), SignalMetrics), nil, "v1")
	if err != nil {
		t.Fatal(err)
	}
	snapshots := store.Gather()
	at := created.Add(time.Minute)
	if err := m.Export(snapshots, at); err != nil {
		t.Fatal(err)
	}
	closeIt(t, m)
	got := c.points()
	number := func(key string) *metrics.NumberDataPoint {
		p, ok := got[key].(*metrics.NumberDataPoint)
		if !ok {
			t.Errorf("no %s in %v", key, got)
			return &metrics.NumberDataPoint{}
		}
		if p.TimeUnixNano != uint64(at.UnixNano()) {
			t.Errorf("%s: time %d", key, p.TimeUnixNano)
		}
		return p
	}
	for key, want := range map[string]int64{
		`corescope.opensnoop.events{thread.name="sh�",k8s.pod.name="p",k8s.container.name="c"}`: 3,
		`corescope.opensnoop.events{container.name="c"}`:                                        4,
		`corescope.opensnoop.events{otel.metric.overflow=true}`:                                 11,
	} {
		key = strings.Replace(key, `{thread.name="sh�",k8s.pod.name="p",k8s.container.name="c"}`, `{thread.name="sh�",k8s.container.name="c",k8s.pod.name="p"}`, 1)
		if p := number(key); p.GetAsInt() != want && key[len(key)-5:] != "true}" || p.StartTimeUnixNano != uint64(created.UnixNano()) {
			t.Errorf("%s: %v, want %d", key, p, want)
		}
	}
	if p := number("corescope.cpu{}"); p.GetAsDouble() != 1.5 {
		t.Errorf("%v", p)
	}
	if p := number("corescope.memory{}"); p.GetAsDouble() != -2 || p.StartTimeUnixNano != 0 {
		t.Errorf("%v", p)
	}
	p := got[`corescope.runqlat.duration{container.name="c"}`].(*metrics.ExponentialHistogramDataPoint)
	if p.Count != 17 || p.ZeroCount != 2 || p.GetSum() != 3.5 || p.Scale != 3 || p.Positive.Offset != -4 ||
		!slices.Equal(p.Positive.BucketCounts, []uint64{4, 0, 0, 5, 6}) || p.StartTimeUnixNano != uint64(created.UnixNano()) {
		t.Errorf("%v", p)
	}
	if e := p.Exemplars[0]; e.GetAsDouble() != 1 || render(e.FilteredAttributes) != `{process.pid="7"}` || e.TimeUnixNano != uint64(created.UnixNano()) {
		t.Errorf("%v", e)
	}
	if p := got[`corescope.runqlat.duration{container.name="empty"}`].(*metrics.ExponentialHistogramDataPoint); p.Count != 0 || p.Positive != nil {
		t.Errorf("%v", p)
	}
	for _, s := range c.metrics[0].ScopeMetrics[0].Metrics {
		if sum := s.GetSum(); sum != nil && (!sum.IsMonotonic || sum.AggregationTemporality != metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE) {
			t.Errorf("%v", s)
		}
		if s.Name == "corescope.runqlat.duration" && (s.Unit != "s" || s.Description != "Help." ||
			s.GetExponentialHistogram().AggregationTemporality != metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE) {
			t.Errorf("%v", s)
		}
	}
	points := 0
	for _, s := range snapshots {
		points += len(s.Series)
	}
	if s := m.Stats(); int(s.Accepted) != points || len(got) != points {
		t.Errorf("%d points, %d arrived: %+v", points, len(got), s)
	}
}

// TestManyMetrics checks that large snapshots are sent in several requests.
func TestManyMetrics(t *testing.T) {
	store := metric.NewStore(metric.Options{MaxSeries: 20_000})
	counter, err := store.Counter(metric.Description{Name: []string{"x"}, Help: "Help.", Labels: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 15_000 {
		counter.Add(uint64(i), fmt.Sprint(strings.Repeat("x", 60), i))
	}
	c := &collector{}
	m, err := NewMetrics(config(t, serve(t, c), SignalMetrics), nil, "v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Export(store.Gather(), time.Now()); err != nil {
		t.Fatal(err)
	}
	closeIt(t, m)
	if n := len(c.points()); n != 15_002 || len(c.sizes) < 3 || slices.Max(c.sizes) > maxRequest+1000 {
		t.Errorf("%d points in requests of %v bytes", n, c.sizes)
	}
}

func TestEnvironment(t *testing.T) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	c, err := FromEnvironment(SignalLogs, environment())
	if err != nil || c.Endpoint != "" || !c.Gzip || c.Timeout != 10*time.Second || c.TLS != nil || len(c.Header) != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, tt := range []struct {
		signal Signal
		env    []string
		want   string // endpoint
	}{
		{SignalLogs, []string{prefix + "ENDPOINT=http://h:4318"}, "http://h:4318/v1/logs"},
		{SignalLogs, []string{prefix + "ENDPOINT=https://h/otlp/"}, "https://h/otlp/v1/logs"},
		{SignalProfiles, []string{prefix + "ENDPOINT=https://h/otlp/"}, "https://h/otlp/v1development/profiles"},
		{SignalMetrics, []string{prefix + "ENDPOINT=http://h", prefix + "METRICS_ENDPOINT=http://m/push", prefix + "LOGS_ENDPOINT=http://l"}, "http://m/push"},
		{SignalMetrics, []string{prefix + "ENDPOINT= http://h ", prefix + "METRICS_ENDPOINT= "}, "http://h/v1/metrics"},
	} {
		if c, err := FromEnvironment(tt.signal, environment(tt.env...)); err != nil || c.Endpoint != tt.want {
			t.Errorf("%v: %q, %v, want %q", tt.env, c.Endpoint, err, tt.want)
		}
	}
	c, err = FromEnvironment(SignalLogs, environment(
		prefix+"HEADERS=a=b, Authorization = Basic%20eDp5PQ== ,,", prefix+"TIMEOUT=2500", prefix+"LOGS_COMPRESSION=none", prefix+"COMPRESSION=gzip", prefix+"PROTOCOL=http/protobuf"))
	if err != nil || !reflect.DeepEqual(c.Header, http.Header{"A": {"b"}, "Authorization": {"Basic eDp5PQ=="}}) || c.Timeout != 2500*time.Millisecond || c.Gzip {
		t.Errorf("%+v, %v", c, err)
	}
	for _, env := range []string{
		"ENDPOINT=h:4318", "ENDPOINT=unix:///x", "ENDPOINT=http://", "PROTOCOL=grpc", "LOGS_PROTOCOL=http/json", "HEADERS=a", "HEADERS==b", "HEADERS=a=%zz",
		"HEADERS=a=b%0ac", "HEADERS=a%20b=c", "TIMEOUT=1s", "TIMEOUT=0", "TIMEOUT=-1", "COMPRESSION=zstd", "CERTIFICATE=/does/not/exist", "CLIENT_KEY=/does/not/exist",
		"CERTIFICATE=/dev/null",
	} {
		_, err := FromEnvironment(SignalLogs, environment(prefix+env))
		name, _, _ := strings.Cut(prefix+env, "=")
		if err == nil || !strings.Contains(err.Error(), "environment variable") || !strings.Contains(env, "CERT") && !strings.Contains(env, "KEY") && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", env, err)
		}
	}
}

func TestResource(t *testing.T) {
	got, err := Resource(environment("OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=a%2Cb,host.name=other", "OTEL_SERVICE_NAME=s"), String("host.name", "h"), String("host.id", ""), Int("n", 0))
	var text []string
	for _, a := range got {
		text = append(text, a.key+"="+a.text)
	}
	if want := []string{"n=", "deployment.environment.name=a,b", "host.name=other", "service.name=s"}; err != nil || !slices.Equal(text, want) {
		t.Errorf("%q, %v", text, err)
	}
	if got, err := Resource(environment()); err != nil || len(got) != 1 || got[0].text != "corescope" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Resource(environment("OTEL_RESOURCE_ATTRIBUTES=x")); err == nil {
		t.Error("invalid attributes were accepted")
	}
}

func TestTLS(t *testing.T) {
	c := &collector{t: t}
	server := httptest.NewTLSServer(c)
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := FromEnvironment(SignalLogs, environment("OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "OTEL_EXPORTER_OTLP_CERTIFICATE="+ca))
	if err != nil {
		t.Fatal(err)
	}
	l := newLogs(t, o)
	l.Emit(&Record{Event: "x"})
	closeIt(t, l)
	if len(c.records()) != 1 || o.TLS.MinVersion != tls.VersionTLS12 {
		t.Errorf("%+v", l.Stats())
	}
}

// TestReason checks what is shown of the answer of a server that refuses data.
func TestReason(t *testing.T) {
	for response, want := range map[string]string{
		"": "", "plain\n": "plain", string(appendString(appendVarint(nil, 1, 3), 2, "bad data")): "bad data", "\xff\xff": "",
	} {
		if got := statusText([]byte(response)); got != want {
			t.Errorf("%q: %q, want %q", response, got, want)
		}
	}
	for _, response := range []string{"", "\x0a", "\x0a\xff", "text", string(appendMessage(nil, 1, appendVarint(nil, 1, math.MaxUint64)))} {
		if n, _ := rejected([]byte(response)); n != 0 {
			t.Errorf("%q: %d rejected", response, n)
		}
	}
}

func FuzzResponses(f *testing.F) {
	f.Add([]byte("\x0a\x02\x08\x03"))
	f.Fuzz(func(t *testing.T, response []byte) {
		rejected(response)
		statusText(response)
	})
}
