package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/otlp"
	"github.com/corescope/corescope/internal/push"
	"github.com/corescope/corescope/internal/pyroscope"
	"github.com/corescope/corescope/internal/value"
)

// exporter sends metrics and log records to a collector. Fields are nil for what is not sent.
type exporter struct {
	metrics  *otlp.Metrics
	logs     *otlp.Logs
	profiles []profiles
	process  *process
	lost     *metric.Counter
	queued   *metric.Gauge

	mutex   sync.Mutex
	counted map[string]uint64 // lost items in the counter, by signal; guarded by mutex
}

// profiles are sent to a server.
type profiles struct {
	signal string // name of the server's protocol in metrics
	profileSender
}

// profileSender sends the profiles of tools.
type profileSender interface {
	Export(tool string, p *flame.Profile) error
	Stats() push.Stats
	Close(ctx context.Context) error
}

// newExporter returns an exporter for what the configuration sends.
func (a *Agent) newExporter(c *Config, store *metric.Store) (*exporter, error) {
	e := &exporter{process: a.host.own.process, counted: map[string]uint64{}}
	var errs [2]error
	e.lost, errs[0] = store.Counter(metric.Description{
		Name: []string{"export", "lost"}, Unit: "{item}", Labels: []string{"signal", "reason"}, Permanent: true,
		Help: "Data points, log records and profiles (for Pyroscope: distinct stacks) that were not delivered: the queue was full, or the server refused them.",
	})
	e.queued, errs[1] = store.Gauge(metric.Description{
		Name: []string{"export", "queued"}, Unit: metric.Bytes, Labels: []string{"signal"}, Permanent: true,
		Help: "Data that waits to be sent.",
	})
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	resource, err := a.resource()
	if err != nil {
		return nil, err
	}
	if c.OTLP.Metrics {
		config, err := a.signal(c, otlp.SignalMetrics)
		if err == nil {
			e.metrics, err = otlp.NewMetrics(config, resource, a.Version)
		}
		if err != nil {
			return nil, fmt.Errorf("send metrics: %w", err)
		}
	}
	// A reload can add the first tool with log records.
	if config, err := a.signal(c, otlp.SignalLogs); err == nil {
		if e.logs, err = otlp.NewLogs(config, resource, a.Version); err != nil {
			return nil, fmt.Errorf("send log records: %w", err)
		}
	} else if !errors.Is(err, errNoEndpoint) || c.wantsLogs() {
		return nil, fmt.Errorf("send log records: %w", err)
	}
	return e, e.startProfiles(a, c, resource)
}

func (e *exporter) startProfiles(a *Agent, c *Config, resource []otlp.Attribute) error {
	if c.Pyroscope.URL != "" {
		name, _ := os.Hostname()
		sender, err := pyroscope.New(c.Pyroscope.URL, []metric.Label{{Name: "host", Value: name}}, push.Options{
			Report: func(err error) { a.notify("send profiles to Pyroscope: %v", err) },
		})
		if err != nil {
			return fmt.Errorf("send profiles to Pyroscope: %w", err)
		}
		e.profiles = append(e.profiles, profiles{"pyroscope", sender})
	}
	if c.OTLP.Profiles {
		config, err := a.signal(c, otlp.SignalProfiles)
		if err != nil {
			return fmt.Errorf("send profiles: %w", err)
		}
		sender, err := otlp.NewProfiles(config, resource, a.Version)
		if err != nil {
			return fmt.Errorf("send profiles: %w", err)
		}
		e.profiles = append(e.profiles, profiles{string(otlp.SignalProfiles), sender})
	}
	return nil
}

// wantsLogs reports whether a tool sends log records.
func (c *Config) wantsLogs() bool {
	for i := range c.Tools {
		if c.Tools[i].wantsLogs() {
			return true
		}
	}
	return false
}

func (e *Entry) wantsLogs() bool { return e.Export.Logs != nil && *e.Export.Logs }

// resource returns the attributes of this machine.
func (a *Agent) resource() ([]otlp.Attribute, error) {
	name, _ := os.Hostname()
	id, _ := os.ReadFile("/etc/machine-id")
	return otlp.Resource(os.Getenv,
		otlp.String("service.version", a.Version), otlp.String("host.name", name),
		otlp.String("host.id", string(trimmed(id))), otlp.String("os.type", "linux"),
	)
}

func trimmed(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b
}

var errNoEndpoint = errors.New("no collector is configured: set otlp.endpoint or OTEL_EXPORTER_OTLP_ENDPOINT")

// signal returns how one signal is sent. The configuration's endpoint takes precedence.
func (a *Agent) signal(c *Config, s otlp.Signal) (otlp.Config, error) {
	config, err := otlp.FromEnvironment(s, os.Getenv)
	if err != nil {
		return config, err
	}
	if c.OTLP.Endpoint != "" {
		config.Endpoint = otlp.Endpoint(c.OTLP.Endpoint, s)
	}
	if config.Endpoint == "" {
		return config, errNoEndpoint
	}
	config.Report = func(err error) { a.notify("%v", err) }
	return config, nil
}

// run sends the metrics at intervals until the context is done, and then sends what is left.
func (e *exporter) run(ctx context.Context, c *Config, store *metric.Store) error {
	tick := time.NewTicker(time.Duration(c.OTLP.Interval))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return e.close(store)
		case <-tick.C:
		}
		if err := e.export(store); err != nil {
			return err
		}
	}
}

func (e *exporter) export(store *metric.Store) error {
	e.count()
	if e.metrics == nil {
		return nil
	}
	e.process.update()
	return e.metrics.Export(store.Gather(), time.Now())
}

// closeTimeout is the time in which the rest is sent.
const closeTimeout = 5 * time.Second

func (e *exporter) close(store *metric.Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := e.export(store)
	if e.metrics != nil {
		err = errors.Join(err, e.metrics.Close(ctx))
	}
	if e.logs != nil {
		err = errors.Join(err, e.logs.Close(ctx))
	}
	for _, p := range e.profiles {
		err = errors.Join(err, p.Close(ctx))
	}
	return err
}

// count updates the metrics about exporting.
func (e *exporter) count() {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	update := func(signal string, s push.Stats) {
		e.lost.Add(s.Lost-e.counted[signal], signal, "export")
		e.counted[signal] = s.Lost
		e.queued.Set(float64(s.QueuedBytes), signal)
	}
	if e.metrics != nil {
		update("metrics", e.metrics.Stats())
	}
	if e.logs != nil {
		update("logs", e.logs.Stats())
	}
	for _, p := range e.profiles {
		update(p.signal, p.Stats())
	}
}

// recorder turns rows into log records.
type recorder struct {
	logs  *otlp.Logs
	event string
	keys  []string

	cols  []*column.Column
	time  *value.Time
	attrs []otlp.Attribute
	body  []byte
}

// bind finds the columns of the records.
func (r *recorder) bind(cols []column.Column) {
	for i := range cols {
		c := &cols[i]
		if t, ok := c.Value.(*value.Time); ok && c.Key == "time" {
			r.time = t
			continue
		}
		for _, key := range r.keys {
			if key == c.Key {
				r.cols = append(r.cols, c)
			}
		}
	}
}

// row sends the row that the columns are bound to.
func (r *recorder) row() {
	r.attrs, r.body = append(r.attrs[:0], otlp.String("corescope.tool", r.event)), r.body[:0]
	inPod := false
	for _, c := range r.cols {
		inPod = inPod || c.Key == "pod" && !c.Absent()
	}
	for _, c := range r.cols {
		if c.Lacking || c.Absent() {
			continue
		}
		r.attrs = append(r.attrs, attribute(otlp.AttributeName(c.Key, inPod), c))
		if len(r.body) > 0 {
			r.body = append(r.body, ' ')
		}
		r.body = c.AppendText(append(append(r.body, c.Key...), '='))
	}
	now := time.Now()
	at := now
	if r.time != nil {
		at = time.Unix(0, int64(*r.time))
	}
	r.logs.Emit(&otlp.Record{Event: "corescope." + r.event, Time: at, Observed: now, Body: string(r.body), Attributes: r.attrs})
}

// attribute returns the value of a column as an attribute.
func attribute(name string, c *column.Column) otlp.Attribute {
	switch v := c.Any().(type) {
	case string:
		return otlp.String(name, v)
	case int:
		return otlp.Int(name, int64(v))
	case float64:
		return otlp.Float(name, v)
	case bool:
		return otlp.Bool(name, v)
	case []string:
		return otlp.Strings(name, v)
	}
	return otlp.String(name, string(c.AppendText(nil)))
}

// labelValue returns the value of a column as a label.
func labelValue(c *column.Column) string {
	switch v := c.Any().(type) {
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	}
	return string(c.AppendText(nil))
}

// eventName is the name of an entry's log records.
func (e *Entry) eventName() string { return cmp.Or(e.Name, e.Tool) }
