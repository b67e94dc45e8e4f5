package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools/biosnoop"
)

// prometheus is a running Prometheus.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus starts a Prometheus that scrapes these addresses five times a second.
func startPrometheus(t *testing.T, targets ...string) *prometheus {
	t.Helper()
	program := component(t, "debian/sid-"+runtime.GOARCH+"/prometheus/usr/bin/prometheus")
	dir := t.TempDir()
	list, err := json.Marshal(targets)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"+
		"scrape_configs:\n- {job_name: corescope, always_scrape_classic_histograms: true, static_configs: [{targets: %s}]}\n", list)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, nil, "check", "config", config)
	address := freeAddress(t)
	server := startProcess(t, program, "--config.file="+config, "--storage.tsdb.path="+dir+"/data", "--web.listen-address="+address,
		"--enable-feature=native-histograms,exemplar-storage", "--log.level=warn")
	p := &prometheus{t, "http://" + address}
	server.await(t, "Prometheus to be ready", func() bool { return get(t, p.url+"/-/ready") != nil })
	return p
}

// promtool runs Prometheus' own check, which must report nothing but success.
func promtool(t *testing.T, input []byte, args ...string) {
	t.Helper()
	cmd := exec.Command(component(t, "debian/sid-"+runtime.GOARCH+"/promtool/usr/bin/promtool"), args...)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil || input != nil && len(out) > 0 {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// sample is a sample of an instant vector.
type sample struct {
	Metric map[string]string
	Value  []any
}

func (s sample) number(t *testing.T) float64 {
	t.Helper()
	text, _ := s.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// call decodes the data of an answer of the API.
func (p *prometheus) call(path string, parameters url.Values, data any) {
	p.t.Helper()
	var answer struct {
		Status string
		Data   json.RawMessage
	}
	err := json.Unmarshal(get(p.t, p.url+path+"?"+parameters.Encode()), &answer)
	if err == nil {
		err = json.Unmarshal(answer.Data, data)
	}
	if err != nil || answer.Status != "success" {
		p.t.Fatalf("%s %v: %v, status %q", path, parameters, err, answer.Status)
	}
}

// query returns the result of an expression.
func (p *prometheus) query(expression string) []sample {
	p.t.Helper()
	var data struct{ Result []sample }
	p.call("/api/v1/query", url.Values{"query": {expression}}, &data)
	return data.Result
}

// one returns the result of an expression with one sample, or NaN.
func (p *prometheus) one(expression string) float64 {
	p.t.Helper()
	all := p.query(expression)
	if len(all) != 1 {
		return math.NaN()
	}
	return all[0].number(p.t)
}

// awaitScrapes waits until both agents were scraped this often since now.
func (p *prometheus) awaitScrapes(agents, n int) {
	p.t.Helper()
	begun := time.Now()
	await(p.t, fmt.Sprintf("%d scrapes", n), func() bool {
		window := int(time.Since(begun).Seconds())
		if window == 0 {
			return false
		}
		counts := p.query(fmt.Sprintf("count_over_time(up[%ds])", window))
		return len(counts) == agents && !slices.ContainsFunc(counts, func(s sample) bool { return s.number(p.t) < float64(n) })
	})
}

const latency = "corescope_biolatency_duration_seconds"

// TestPrometheus reads from a disk beside two agents and biosnoop, whose rows are the reference: their
// count and sum are exact, also merged over both agents, each percentile is in the bucket of the true
// one or next to it, and nothing decreases.
func TestPrometheus(t *testing.T) {
	needs(t, "prometheus", "needs a Prometheus")
	config := "interval: 500ms\ntools:\n  - {tool: biolatency, args: [--comm, " + workloadName + "]}\n" +
		"  - {tool: execsnoop, args: [--comm, " + workloadName + "]}\n  - {tool: runqlat, args: [--comm, " + workloadName + "]}\n  - tool: cachestat\n"
	first, _ := startAgent(t, config)
	second, _ := startAgent(t, config)
	p := startPrometheus(t, first, second)
	pids, hidden := map[string]bool{}, tooltest.HiddenRuns()
	res := tooltest.JSON(t, biosnoop.Tool, []string{"--comm", workloadName}, func() {
		for range 3 {
			pids[strconv.Itoa(work(t))] = true
		}
	})
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Fatalf("biosnoop lost %v events", lost)
	}
	var values []float64
	sum := 0.0
	for _, row := range res.Events {
		values = append(values, row.Num("latency_ns")/1e9)
		sum += values[len(values)-1]
	}
	// A read that ends in an interrupt of a hidden process is not observed, by any of the three.
	if hidden = tooltest.HiddenRuns() - hidden; len(values)+hidden < 3*readCount || len(values) < readCount {
		t.Fatalf("biosnoop has %d rows of %d reads; a hidden process ran %d times", len(values), 3*readCount, hidden)
	}
	await(t, "all values in Prometheus", func() bool {
		return p.one("sum(histogram_count("+latency+"))") >= float64(2*len(values))
	})
	p.awaitScrapes(2, 100)

	if n := p.one("histogram_count(sum(" + latency + "))"); n != float64(2*len(values)) {
		t.Errorf("both agents have %v values, want twice %d", n, len(values))
	}
	if got := p.one("histogram_sum(sum(" + latency + "))"); math.Abs(got-2*sum) > 2*sum/50 { // two programs read the clock
		t.Errorf("the sum of both agents is %v, want %v", got, 2*sum)
	}
	slices.Sort(values)
	for _, q := range []float64{0.1, 0.5, 0.9, 0.99} {
		want := values[int(math.Ceil(q*float64(len(values))))-1]
		for _, of := range []string{latency, fmt.Sprintf("%s{instance=%q}", latency, first)} {
			got := p.one(fmt.Sprintf("histogram_quantile(%v, sum(%s))", q, of))
			if d := bucketOf(got) - bucketOf(want); !(math.Abs(d) <= 1) {
				t.Errorf("quantile %v of %s is %v, the true one %v: %v buckets away", q, of, got, want, d)
			}
			t.Logf("quantile %v of %s: %.1f us, the rows have %.1f us", q, of, got*1e6, want*1e6)
		}
	}
	p.checkResets()
	promtool(t, get(t, "http://"+first+"/metrics"), "check", "metrics")
	if execs := p.one(`sum(corescope_execsnoop_events_total)`); execs != 6 {
		t.Errorf("%v execs, want 3 per agent", execs)
	}
	p.checkExemplars(pids)
}

// checkResets checks that no counter and no histogram decreased.
func (p *prometheus) checkResets() {
	p.t.Helper()
	var names []string
	p.call("/api/v1/label/__name__/values", nil, &names)
	counters := regexp.MustCompile(`^corescope_.+_(total|bucket|count|sum|seconds)$`)
	n := 0
	for _, name := range names {
		if !counters.MatchString(name) {
			continue
		}
		n += len(p.query(fmt.Sprintf("last_over_time(%s[10m])", name)))
		for _, s := range p.query(fmt.Sprintf("resets(%s[10m]) > 0", name)) {
			p.t.Errorf("%s %v was reset", name, s.Metric)
		}
	}
	if n < 50 {
		p.t.Errorf("only %d series of counters and histograms", n)
	}
	p.t.Logf("no resets in %d series", n)
}

// bucketOf returns the number of the bucket of schema 3 that contains a value.
func bucketOf(v float64) float64 { return math.Ceil(math.Log2(v) * 8) }

// checkExemplars checks that exemplars of the workload name its processes.
func (p *prometheus) checkExemplars(pids map[string]bool) {
	p.t.Helper()
	var data []struct {
		Exemplars []struct{ Labels map[string]string }
	}
	p.call("/api/v1/query_exemplars", url.Values{"query": {"corescope_runqlat_duration_seconds"}, "start": {strconv.FormatInt(time.Now().Unix()-600, 10)},
		"end": {strconv.FormatInt(time.Now().Unix()+1, 10)}}, &data)
	n := 0
	for _, series := range data {
		for _, e := range series.Exemplars {
			n++
			if !pids[e.Labels["pid"]] {
				p.t.Errorf("an exemplar has the labels %v, want a process of %v", e.Labels, pids)
			}
		}
	}
	if n == 0 {
		p.t.Error("no exemplars")
	}
}
