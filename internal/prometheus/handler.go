package prometheus

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/corescope/corescope/internal/metric"
)

// Options define what a [Handler] serves.
type Options struct {
	// Gather returns the metrics.
	Gather func() []metric.Snapshot
	// Healthy and Ready return why the process is not healthy or not ready, or nil.
	Healthy, Ready func() error
	// NoClassic leaves classic buckets out where a scraper takes native buckets, except for those
	// with an exemplar.
	NoClassic bool
}

// maxScrapes is the limit of scrapes that are encoded or sent at the same time. Others wait for maxWait,
// which is below the usual timeout of scrapers, and a response has to be read in maxSend.
const (
	maxScrapes = 4
	maxWait    = 5 * time.Second
	maxSend    = 10 * time.Second
)

// Handler serves /metrics, /healthz and /readyz.
func Handler(o Options) http.Handler {
	h := newHandler(o)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", h.metrics)
	mux.HandleFunc("GET /healthz", state(o.Healthy))
	mux.HandleFunc("GET /readyz", state(o.Ready))
	return mux
}

func newHandler(o Options) *handler {
	h := &handler{options: o, slots: make(chan bool, maxScrapes), wait: maxWait}
	h.buffers.New = func() any { return new(buffers) }
	return h
}

type handler struct {
	options Options
	slots   chan bool
	wait    time.Duration // for a slot
	buffers sync.Pool
}

// buffers are used again by later scrapes.
type buffers struct {
	body, compressed bytes.Buffer
	gzip             *gzip.Writer
	text             textWriter
}

func state(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if check != nil {
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				fmt.Fprintln(w, err)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	}
}

func (h *handler) metrics(w http.ResponseWriter, r *http.Request) {
	select {
	case h.slots <- true:
		defer func() { <-h.slots }()
	case <-r.Context().Done():
		return
	case <-time.After(h.wait):
		w.Header().Set("Retry-After", "5")
		http.Error(w, fmt.Sprintf("%d other scrapes are not finished", maxScrapes), http.StatusServiceUnavailable)
		return
	}
	b := h.buffers.Get().(*buffers)
	defer h.buffers.Put(b)
	b.body.Reset()
	format := negotiate(strings.Join(r.Header.Values("Accept"), ","))
	snapshots := h.options.Gather()
	if format == formatProtobuf {
		if err := writeProtobuf(&b.body, snapshots, !h.options.NoClassic); err != nil {
			http.Error(w, fmt.Sprintf("encode metrics: %v", err), http.StatusInternalServerError)
			return
		}
	} else {
		b.text.open, b.text.out = format == formatOpenMetrics, b.text.out[:0]
		b.text.all(snapshots)
		b.body.Write(b.text.out)
	}
	header := w.Header()
	header.Set("Content-Type", format.contentType())
	header.Set("Vary", "Accept, Accept-Encoding")
	body := &b.body
	if acceptsGzip(strings.Join(r.Header.Values("Accept-Encoding"), ",")) {
		header.Set("Content-Encoding", "gzip")
		b.compress()
		body = &b.compressed
	}
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	// A scraper that reads nothing must not keep others from their metrics for long.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(maxSend))
	_, _ = body.WriteTo(w) // the scraper has gone
}

func (b *buffers) compress() {
	b.compressed.Reset()
	if b.gzip == nil {
		b.gzip = gzip.NewWriter(&b.compressed)
	} else {
		b.gzip.Reset(&b.compressed)
	}
	_, _ = b.body.WriteTo(b.gzip) // a write to memory does not fail
	_ = b.gzip.Close()
}

// format is a format of the exposition.
type format int

const (
	formatText format = iota
	formatOpenMetrics
	formatProtobuf
)

func (f format) contentType() string {
	return [...]string{
		"text/plain; version=0.0.4; charset=utf-8",
		"application/openmetrics-text; version=1.0.0; charset=utf-8",
		"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
	}[f]
}

// negotiate returns the format that the header "Accept" prefers, and the first one of equals. It is
// the text format if the header has none of them.
func negotiate(accept string) format {
	best, quality := formatText, 0.0
	for _, part := range split(accept) {
		kind, parameters, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		var f format
		switch version := parameters["version"]; {
		case kind == "application/vnd.google.protobuf" && parameters["proto"] == "io.prometheus.client.MetricFamily" && parameters["encoding"] == "delimited":
			f = formatProtobuf
		case kind == "application/openmetrics-text" && (version == "" || version == "0.0.1" || version == "1.0.0"):
			f = formatOpenMetrics
		case kind == "text/plain" && (version == "" || version == "0.0.4"), kind == "text/*", kind == "*/*":
			f = formatText
		default:
			continue
		}
		if q := qualityOf(parameters["q"]); q > quality {
			best, quality = f, q
		}
	}
	return best
}

// split splits a header at its commas outside quotation marks.
func split(header string) (parts []string) {
	quoted := false
	for _, part := range strings.FieldsFunc(header, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ',' && !quoted
	}) {
		parts = append(parts, strings.TrimSpace(part))
	}
	return parts
}

func qualityOf(q string) float64 {
	if q == "" {
		return 1
	}
	v, err := strconv.ParseFloat(q, 64)
	if err != nil {
		return 0
	}
	return v
}

func acceptsGzip(header string) bool {
	for _, part := range split(header) {
		coding, parameters, _ := strings.Cut(part, ";")
		_, q, _ := strings.Cut(strings.ReplaceAll(parameters, " ", ""), "q=")
		if coding = strings.TrimSpace(coding); strings.EqualFold(coding, "gzip") || coding == "*" {
			return qualityOf(q) > 0
		}
	}
	return false
}
