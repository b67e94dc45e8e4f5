package prometheus

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/metric"
)

const hostile = "a\"b\\c\nd\x01\xff\u202e"

func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// example returns a store with metrics of all kinds.
func example(t testing.TB) *metric.Store {
	s := metric.NewStore(metric.Options{MaxSeries: 5, Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	d := func(unit metric.Unit, labels []string, name ...string) metric.Description {
		return metric.Description{Name: name, Unit: unit, Help: "The \"help\",\na \\ too.", Labels: labels}
	}
	events := must1(t)(s.Counter(d("{event}", []string{"comm"}, "opensnoop", "events")))
	events.Add(3, "sh")
	events.Add(4, hostile)
	for i := range 10 {
		events.Add(1, fmt.Sprint("comm", i))
	}
	must1(t)(s.Counter(d(metric.Bytes, nil, "tcplife", "tx_bytes"))).Add(1<<53 + 1)
	cpu := d(metric.Seconds, nil, "cpu")
	cpu.Divisor = 1e9
	must1(t)(s.Counter(cpu)).Add(1_500_000_000)
	gauge, err := s.Gauge(d(metric.Bytes, []string{"state"}, "memory"))
	must(t, gauge, err).Set(math.Inf(1), "a")
	gauge.Set(-2.5, "b")
	h, err := s.Histogram(d(metric.Seconds, []string{"disk"}, "biolatency", "duration"))
	must(t, h, err).Add(&histogram.Exponential{Schema: 3, Zero: 2, Sum: 30.5, Buckets: map[int]uint64{-400: 1, -100: 5, -99: 1, -96: 7, -80: 2, 0: 9, 1: 10, 48: 1, 49: 3}}, "sda")
	at := time.Unix(1_699_999_999, 123e6)
	h.Exemplar(metric.Exemplar{Value: 1, Time: at, Labels: []metric.Label{{Name: "pid", Value: "7"}, {Name: "comm", Value: hostile}}}, "sda")
	h.Exemplar(metric.Exemplar{Value: 1e-9, Time: at}, "sda")
	h.Exemplar(metric.Exemplar{Value: 99, Time: at, Labels: []metric.Label{{Name: "pid", Value: "8"}}}, "sda")
	return s
}

func must1(t testing.TB) func(*metric.Counter, error) *metric.Counter {
	return func(c *metric.Counter, err error) *metric.Counter {
		t.Helper()
		return must(t, c, err)
	}
}

const (
	acceptProtobuf    = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.1"
	acceptOpenMetrics = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
)

func scrape(t testing.TB, o Options, accept string) (contentType string, body []byte) {
	t.Helper()
	r := httptest.NewRequest("GET", "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	Handler(o).ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Header().Get("Content-Type"), w.Body.Bytes()
}

// parse parses an exposition with the parser of Prometheus's libraries.
func parse(t testing.TB, contentType string, body []byte) map[string]*dto.MetricFamily {
	t.Helper()
	h := http.Header{}
	h.Set("Content-Type", contentType)
	families := map[string]*dto.MetricFamily{}
	for d := expfmt.NewDecoder(bytes.NewReader(body), expfmt.ResponseFormat(h)); ; {
		f := &dto.MetricFamily{}
		if err := d.Decode(f); errors.Is(err, io.EOF) {
			return families
		} else if err != nil {
			t.Fatalf("%v\n%s", err, body)
		}
		if families[f.GetName()] != nil {
			t.Errorf("%s occurs twice", f.GetName())
		}
		families[f.GetName()] = f
	}
}

// simple returns the values of counters and gauges as "name{label=value}", and the count, sum and
// classic buckets of histograms.
func simple(families map[string]*dto.MetricFamily) map[string]float64 {
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += fmt.Sprintf("%s=%s,", l.GetName(), l.GetValue())
			}
			key := name + "{" + labels + "}"
			switch {
			case m.Counter != nil:
				out[key] = m.GetCounter().GetValue()
			case m.Gauge != nil:
				out[key] = m.GetGauge().GetValue()
			case m.Histogram != nil:
				out[key+"count"] = float64(m.GetHistogram().GetSampleCount())
				out[key+"sum"] = m.GetHistogram().GetSampleSum()
				for _, b := range m.GetHistogram().GetBucket() {
					if !math.IsInf(b.GetUpperBound(), 1) {
						out[fmt.Sprintf("%sle=%v", key, b.GetUpperBound())] = float64(b.GetCumulativeCount())
					}
				}
			}
		}
	}
	return out
}

// TestTextAndProtobufAgree checks that both formats can be parsed, and with the same values.
func TestTextAndProtobufAgree(t *testing.T) {
	o := Options{Gather: example(t).Gather}
	text := simple(parse2(t, o, "", "text/plain; version=0.0.4; charset=utf-8"))
	protobuf := simple(parse2(t, o, acceptProtobuf, formatProtobuf.contentType()))
	if len(text) < 40 || fmt.Sprint(text) != fmt.Sprint(protobuf) {
		t.Errorf("text\n%v\nprotobuf\n%v", text, protobuf)
	}
	clean := strings.ToValidUTF8(hostile, "\uFFFD")
	const histogram = "corescope_biolatency_duration_seconds{disk=sda,}"
	for key, want := range map[string]float64{
		"corescope_opensnoop_events_total{comm=sh,}":                   3,
		"corescope_opensnoop_events_total{comm=" + clean + ",}":        4,
		"corescope_opensnoop_events_total{otel_metric_overflow=true,}": 8,
		"corescope_tcplife_tx_bytes_total{}":                           1 << 53,
		"corescope_cpu_seconds_total{}":                                1.5,
		"corescope_memory_bytes{state=a,}":                             math.Inf(1),
		"corescope_memory_bytes{state=b,}":                             -2.5,
		histogram + "count":                                            41,
		histogram + "sum":                                              30.5,
		histogram + "le=9.5367431640625e-07":                           3,
		histogram + "le=0.0001220703125":                               3,  // -13: up to index -104
		histogram + "le=0.000244140625":                                16, // -12: up to -96
		histogram + "le=1":                                             27,
		histogram + "le=2":                                             37,
		histogram + "le=64":                                            38,
	} {
		if got, ok := text[key]; !ok || got != want {
			t.Errorf("%s = %v, want %v", key, got, want)
		}
	}
}

func parse2(t *testing.T, o Options, accept, wantType string) map[string]*dto.MetricFamily {
	t.Helper()
	contentType, body := scrape(t, o, accept)
	if contentType != wantType {
		t.Errorf("content type %q, want %q", contentType, wantType)
	}
	return parse(t, contentType, body)
}

func TestText(t *testing.T) {
	_, body := scrape(t, Options{Gather: example(t).Gather}, "text/plain")
	for _, want := range []string{
		"# HELP corescope_cpu_seconds_total The \"help\",\\na \\\\ too.\n# TYPE corescope_cpu_seconds_total counter\ncorescope_cpu_seconds_total 1.5\n",
		"corescope_tcplife_tx_bytes_total 9007199254740993\n",
		"corescope_biolatency_duration_seconds_bucket{disk=\"sda\",le=\"1\"} 27\n",
		"corescope_biolatency_duration_seconds_bucket{disk=\"sda\",le=\"+Inf\"} 41\n",
		`corescope_opensnoop_events_total{comm="a\"b\\c\nd` + "\x01\uFFFD\u202e\"} 4\n",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	if strings.Contains(string(body), " # ") {
		t.Errorf("exemplar in\n%s", body)
	}
}

// TestOpenMetrics checks each line against the grammar.
func TestOpenMetrics(t *testing.T) {
	contentType, body := scrape(t, Options{Gather: example(t).Gather}, acceptOpenMetrics)
	if contentType != formatOpenMetrics.contentType() {
		t.Error(contentType)
	}
	const (
		labels = `(\{([a-z_]+="([^"\\\n]|\\["\\n])*"(,[a-z_]+="([^"\\\n]|\\["\\n])*")*)?\})`
		number = `(\+Inf|-?[0-9.]+(e[-+][0-9]+)?)`
	)
	line := regexp.MustCompile(`^(# (HELP|TYPE|UNIT) corescope_[a-z_]+ .+|corescope_[a-z_]+` + labels + `? ` + number + `( # ` + labels + ` ` + number + ` [0-9]+\.[0-9]{3})?)$`)
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	for i, l := range lines {
		if last := i == len(lines)-1; last != (l == "# EOF") || !last && !line.MatchString(l) {
			t.Errorf("line %d: %q", i+1, l)
		}
	}
	for _, want := range []string{
		"# HELP corescope_cpu_seconds The \\\"help\\\",\\na \\\\ too.\n# TYPE corescope_cpu_seconds counter\n# UNIT corescope_cpu_seconds seconds\ncorescope_cpu_seconds_total 1.5\n",
		`le="1.0"} 27 # {pid="7",comm="a\"b\\c\nd` + "\x01\uFFFD\u202e\"} 1 1699999999.123\n",
		`le="9.5367431640625e-07"} 3 # {} 1e-09 1699999999.123` + "\n",
		`le="+Inf"} 41 # {pid="8"} 99 1699999999.123` + "\n",
	} {
		if !strings.Contains(string(body), want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
}

// nativeBuckets decodes the native buckets as Prometheus does.
func nativeBuckets(h *dto.Histogram) map[int]uint64 {
	out := map[int]uint64{}
	index, i, count := 0, 0, int64(0)
	for _, span := range h.GetPositiveSpan() {
		index += int(span.GetOffset())
		for range span.GetLength() {
			count += h.GetPositiveDelta()[i]
			if count != 0 {
				out[index] = uint64(count)
			}
			i++
			index++
		}
	}
	return out
}

func TestNative(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		d := &metric.Distribution{Schema: r.IntN(13) - 4, Zero: r.Uint64N(3)}
		d.Count = d.Zero
		index := r.IntN(200) - 150
		want := map[int]uint64{}
		for range r.IntN(50) {
			b := metric.Bucket{Index: index, Count: 1 + r.Uint64N(1000)}
			want[index] = b.Count
			d.Count += b.Count
			d.Buckets = append(d.Buckets, b)
			index += 1 + r.IntN(6)
		}
		h := native(d)
		if got := nativeBuckets(h); fmt.Sprint(got) != fmt.Sprint(want) || len(h.GetPositiveSpan()) == 0 {
			t.Fatalf("got %v, want %v", got, want)
		}
		// Classic buckets have the values up to the bound.
		for _, b := range classic(nil, d, metric.Seconds) {
			sum := d.Zero
			for index, n := range want {
				if math.Exp2(float64(index)/math.Exp2(float64(d.Schema))) <= b.bound {
					sum += n
				}
			}
			if b.count != sum && !(math.IsInf(b.bound, 1) && b.count == d.Count) {
				t.Errorf("schema %d: %d values up to %v, want %d of %v", d.Schema, b.count, b.bound, sum, want)
			}
		}
	}
}

func TestProtobufDetails(t *testing.T) {
	for _, noClassic := range []bool{false, true} {
		families := parse2(t, Options{Gather: example(t).Gather, NoClassic: noClassic}, acceptProtobuf, formatProtobuf.contentType())
		h := families["corescope_biolatency_duration_seconds"].GetMetric()[0].GetHistogram()
		var exemplars []*dto.Exemplar
		buckets := len(h.GetBucket())
		for _, b := range h.GetBucket() {
			if e := b.GetExemplar(); e != nil {
				exemplars = append(exemplars, e)
			}
		}
		if wantBuckets := map[bool]int{false: 28, true: 3}[noClassic]; len(exemplars) != 3 || buckets != wantBuckets || h.GetSchema() != 3 || h.GetZeroCount() != 2 {
			t.Errorf("no classic: %v: %v", noClassic, h)
		}
		if e := exemplars[1]; e.GetValue() != 1 || e.GetTimestamp().AsTime().UnixMilli() != 1_699_999_999_123 || e.GetLabel()[0].GetValue() != "7" {
			t.Errorf("exemplar %v", e)
		}
		if h.GetCreatedTimestamp().AsTime().Unix() != 1_700_000_000 || families["corescope_cpu_seconds_total"].GetMetric()[0].GetCounter().GetCreatedTimestamp().AsTime().Unix() != 1_700_000_000 {
			t.Error("no time of creation")
		}
	}
}

func TestNegotiate(t *testing.T) {
	for accept, want := range map[string]format{
		"":                             formatText,
		"*/*":                          formatText,
		"text/html":                    formatText,
		"text/plain":                   formatText,
		"text/plain;version=1.0.0":     formatText,
		"invalid;;":                    formatText,
		acceptProtobuf:                 formatProtobuf,
		acceptOpenMetrics:              formatOpenMetrics,
		"application/openmetrics-text": formatOpenMetrics,
		"application/openmetrics-text;q=0.2, text/plain;q=0.3":                                                            formatText,
		"application/openmetrics-text;q=0, text/plain;q=0.3":                                                              formatText,
		"application/openmetrics-text;version=2.0.0,text/plain;q=0.1":                                                     formatText,
		"application/vnd.google.protobuf;proto=other;encoding=delimited,application/openmetrics-text;version=0.0.1;q=0.1": formatOpenMetrics,
		`application/vnd.google.protobuf;proto="io.prometheus.client.MetricFamily";encoding="delimited"`:                  formatProtobuf,
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text":                           formatText,
		"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1": formatOpenMetrics,
	} {
		if got := negotiate(accept); got != want {
			t.Errorf("%q: %v, want %v", accept, got, want)
		}
	}
}

func TestGzip(t *testing.T) {
	server := httptest.NewServer(Handler(Options{Gather: example(t).Gather}))
	defer server.Close()
	get := func(encoding string) (string, []byte) {
		r, err := http.NewRequest("GET", server.URL+"/metrics", nil)
		must(t, r, err).Header.Set("Accept-Encoding", encoding)
		response, err := http.DefaultTransport.RoundTrip(r)
		defer must(t, response, err).Body.Close()
		body, err := io.ReadAll(response.Body)
		return response.Header.Get("Content-Encoding"), must(t, body, err)
	}
	_, plain := get("identity")
	for range 3 { // buffers are used again
		encoding, body := get("deflate, gzip;q=0.5")
		z, err := gzip.NewReader(bytes.NewReader(body))
		all, err2 := io.ReadAll(must(t, z, err))
		if encoding != "gzip" || !bytes.Equal(must(t, all, err2), plain) {
			t.Errorf("encoding %q: %d bytes, want %d", encoding, len(all), len(plain))
		}
	}
	for _, header := range []string{"gzip;q=0", "br", "", "gzip; q=0.0"} {
		if encoding, _ := get(header); encoding != "" {
			t.Errorf("%q: encoding %q", header, encoding)
		}
	}
}

func TestHealth(t *testing.T) {
	var err error
	h := Handler(Options{Gather: example(t).Gather, Ready: func() error { return err }})
	get := func(method, path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
	}
	for range 2 {
		want := "200 ok"
		if err != nil {
			want = "503 2 of 3 tools are not attached"
		}
		if got := get("GET", "/readyz"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := get("GET", "/healthz"); got != "200 ok" {
			t.Error(got)
		}
		err = errors.New("2 of 3 tools are not attached")
	}
	if got := get("POST", "/metrics"); !strings.HasPrefix(got, "405") {
		t.Error(got)
	}
	if got := get("GET", "/"); !strings.HasPrefix(got, "404") {
		t.Error(got)
	}
}

// TestTooManyScrapes expects that scrapes beyond the limit wait, and are refused if that takes too long.
func TestTooManyScrapes(t *testing.T) {
	for _, refused := range []bool{false, true} {
		entered, leave := make(chan bool), make(chan bool)
		h := newHandler(Options{Gather: func() []metric.Snapshot {
			entered <- true
			<-leave
			return nil
		}})
		h.wait = time.Hour
		server := httptest.NewServer(http.HandlerFunc(h.metrics))
		results := make(chan int)
		get := func() {
			response, err := http.Get(server.URL + "/metrics")
			if err != nil {
				t.Error(err)
				results <- 0
				return
			}
			response.Body.Close()
			results <- response.StatusCode
		}
		for range maxScrapes {
			go get()
			<-entered
		}
		if refused {
			h.wait = time.Nanosecond
		}
		go get()
		if refused {
			if code := <-results; code != 503 {
				t.Errorf("status %d of a scrape beyond the limit, want 503", code)
			}
			close(leave)
		} else {
			leave <- true
			<-entered // the one that waited
			close(leave)
		}
		want := maxScrapes
		if !refused {
			want++
		}
		for range want {
			if code := <-results; code != 200 {
				t.Errorf("status %d", code)
			}
		}
		server.Close()
	}
}

// TestPromtool checks the metrics with promtool, whose path the environment variable PROMTOOL has.
func TestPromtool(t *testing.T) {
	promtool := os.Getenv("PROMTOOL")
	if promtool == "" {
		t.Skip("the environment variable PROMTOOL does not name promtool")
	}
	for _, accept := range []string{"text/plain"} {
		_, body := scrape(t, Options{Gather: example(t).Gather}, accept)
		cmd := exec.Command(promtool, "check", "metrics")
		cmd.Stdin = bytes.NewReader(body)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// thousand returns a store with 1,000 series: 750 counters and 250 histograms.
func thousand(t testing.TB) *metric.Store {
	s := metric.NewStore(metric.Options{})
	r := rand.New(rand.NewPCG(1, 1))
	c := must1(t)(s.Counter(metric.Description{Name: []string{"opensnoop", "events"}, Unit: "{event}", Help: "Calls.", Labels: []string{"comm", "container"}}))
	h, err := s.Histogram(metric.Description{Name: []string{"runqlat", "duration"}, Unit: metric.Seconds, Help: "Latency.", Labels: []string{"container"}})
	for i := range 750 {
		c.Add(r.Uint64N(1e6), fmt.Sprint("process-", i), fmt.Sprint("container-", i%50))
	}
	for i := range 250 {
		label := fmt.Sprint("container-", i)
		delta := &histogram.Exponential{Schema: 3, Sum: 100 * r.Float64(), Buckets: map[int]uint64{}}
		for range 10_000 {
			delta.Buckets[int(math.Ceil(8*(-14+2*r.NormFloat64())))]++
		}
		must(t, h, err).Add(delta, label)
		for range 5 {
			h.Exemplar(metric.Exemplar{Value: math.Exp2(-20 + 20*r.Float64()), Time: time.Now(), Labels: []metric.Label{{Name: "pid", Value: "12345"}, {Name: "comm", Value: "process"}}}, label)
		}
	}
	return s
}

func BenchmarkScrape(b *testing.B) {
	s := thousand(b)
	for _, tt := range []struct {
		name, accept string
		noClassic    bool
	}{
		{"text", "text/plain", false}, {"openmetrics", acceptOpenMetrics, false},
		{"protobuf", acceptProtobuf, false}, {"protobuf-native", acceptProtobuf, true},
	} {
		for _, encoding := range []string{"identity", "gzip"} {
			b.Run(tt.name+"/"+encoding, func(b *testing.B) {
				h := Handler(Options{Gather: s.Gather, NoClassic: tt.noClassic})
				r := httptest.NewRequest("GET", "/metrics", nil)
				r.Header.Set("Accept", tt.accept)
				r.Header.Set("Accept-Encoding", encoding)
				size := 0
				for b.Loop() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					size = w.Body.Len()
				}
				b.ReportMetric(float64(size), "B/scrape")
			})
		}
	}
}
