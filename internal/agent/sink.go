package agent

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/value"
)

// sink turns the output of one tool into metrics and log records. It implements output.Sink.
type sink struct {
	entry  *Entry
	own    *own
	store  *metric.Store
	runner *runner

	labels   []string // columns
	counters []boundCounter
	gauges   []boundGauge
	events   *metric.Counter
	hist     *metric.Histogram

	profiles []profiles
	recorder *recorder // nil without log records

	lost map[string]uint64 // reported so far, by reason

	bound  bool
	label  []*column.Column // of labels; nil if this run lacks the column
	values []string
}

type boundCounter struct {
	key string
	*metric.Counter
	col *column.Column
}

type boundGauge struct {
	key     string
	divisor float64
	*metric.Gauge
	col *column.Column
}

// own are the metrics about the agent.
type own struct {
	rows, lost, failures *metric.Counter
	up, paused, cpu      *metric.Gauge
	sampling, program    *metric.Gauge
	process              *process
}

func newOwn(store *metric.Store) (*own, error) {
	var o own
	var errs [9]error
	describe := func(name, help string, unit metric.Unit, labels ...string) metric.Description {
		return metric.Description{Name: []string{"tool", name}, Unit: unit, Help: help, Labels: labels, Permanent: true}
	}
	o.rows, errs[0] = store.Counter(describe("rows", "Rows and histograms that a tool delivered.", "{row}", "tool"))
	o.lost, errs[1] = store.Counter(describe("lost", "Events that a tool lost, by reason.", "{event}", "tool", "reason"))
	o.failures, errs[2] = store.Counter(describe("failures", "Runs of a tool that ended with an error.", "{run}", "tool"))
	o.up, errs[3] = store.Gauge(describe("up", "1 if all hooks of a tool are attached, otherwise 0.", "", "tool"))
	o.paused, errs[4] = store.Gauge(describe("paused", "1 if a tool is paused because the CPU time exceeded max_cpu, otherwise 0.", "", "tool"))
	o.cpu, errs[5] = store.Gauge(describe("cpu", "CPU time of a tool's programs and of its share of the agent, as a share of one CPU, in the latest measurement.", metric.One, "tool"))
	o.program, errs[6] = store.Gauge(describe("program_cpu", "CPU time of a program, as a share of one CPU, in the latest measurement.", metric.One, "tool", "program"))
	o.process, errs[7] = newProcess(store)
	o.sampling, errs[8] = store.Gauge(describe("sampling", "N if a tool counts one of N events as N because the CPU time exceeded max_cpu: its counts and sums are estimates then. 1 if it counts all.", "", "tool"))
	return &o, errors.Join(errs[:]...)
}

// wantsMetrics reports whether the entry exports metrics.
func (e *Entry) wantsMetrics() bool { return e.Export.Metrics == nil || *e.Export.Metrics }

// name is the name of the entry in metrics.
func (e *Entry) name() string {
	if e.Name != "" {
		return e.Name
	}
	return strings.ReplaceAll(e.Tool, "-", "_")
}

// errUnknownColumn reports a column of the configuration that the tool does not have.
func errUnknownColumn(key string, all []column.Column) error {
	return fmt.Errorf("column %q: %w (available: %s)", key, column.ErrUnknown, column.Keys(all))
}

// columns returns the columns that the entry needs besides the default ones, for --columns.
func (e *Entry) columns(all []column.Column) []string {
	var words []string
	keys := slices.Concat(e.labels(all), e.Export.Gauges, e.counterKeys(all))
	if e.wantsLogs() {
		keys = append(keys, e.attributes(all)...)
	}
	for _, key := range keys {
		words = append(words, "+"+key)
	}
	return words
}

func (e *Entry) labels(all []column.Column) []string {
	if e.Export.Labels != nil {
		return *e.Export.Labels
	}
	return defaultLabels(all)
}

// attributes returns the columns of log records.
func (e *Entry) attributes(all []column.Column) []string {
	if e.Export.Attributes != nil {
		return *e.Export.Attributes
	}
	return defaultAttributes(all)
}

func (e *Entry) counterKeys(all []column.Column) []string {
	var keys []string
	for i := range all {
		if all[i].Counter && !all[i].Off {
			keys = append(keys, all[i].Key)
		}
	}
	return keys
}

// check reports columns of the configuration that the output does not have.
func (e *Entry) check(all []column.Column) error {
	var asked []string
	if e.Export.Labels != nil {
		asked = append(asked, *e.Export.Labels...)
	}
	named := append(slices.Clone(asked), e.Export.Gauges...)
	if e.Export.Attributes != nil {
		named = append(named, *e.Export.Attributes...)
	}
	for _, key := range named {
		if c := column.Find(all, key); c == nil || c.Key != key {
			return errUnknownColumn(key, all)
		}
	}
	for _, key := range asked {
		if !metric.ValidLabel(key) {
			return fmt.Errorf("column %q cannot be a label", key)
		}
	}
	return nil
}

// describe creates the metrics of a tool with this output.
func (s *sink) describe(o *outline) error {
	if s.recorder != nil {
		s.recorder.event, s.recorder.keys = s.entry.eventName(), s.entry.attributes(o.Columns)
	}
	if !s.entry.wantsMetrics() || o.IsProfile {
		return nil
	}
	if o.Kind == output.KindHistogram {
		return s.describeHistogram(o)
	}
	s.labels = s.entry.labels(o.Columns)
	for _, key := range s.entry.counterKeys(o.Columns) {
		q := quantityOf(key)
		c, err := s.store.Counter(metric.Description{
			Name: q.name(s.entry.name()), Unit: q.unit, Divisor: q.divisor, Labels: s.labels, Help: help(column.Find(o.Columns, key).Help),
		})
		if err != nil {
			return err
		}
		s.counters = append(s.counters, boundCounter{key: key, Counter: c})
	}
	if o.Kind == output.KindEvent {
		c, err := s.store.Counter(metric.Description{
			Name: []string{s.entry.name(), "events"}, Unit: "{event}", Labels: s.labels, Help: help(o.summary),
		})
		if err != nil {
			return err
		}
		s.events = c
	}
	return s.describeGauges(o)
}

func (s *sink) describeGauges(o *outline) error {
	for _, key := range s.entry.Export.Gauges {
		q := quantityOf(key)
		g, err := s.store.Gauge(metric.Description{
			Name: q.name(s.entry.name()), Unit: gaugeUnit(q.unit), Labels: s.labels, Help: help(column.Find(o.Columns, key).Help),
		})
		if err != nil {
			return err
		}
		s.gauges = append(s.gauges, boundGauge{key: key, divisor: float64(q.divisor), Gauge: g})
	}
	return nil
}

// gaugeUnit replaces the unit of counts: a gauge is not a number of events.
func gaugeUnit(u metric.Unit) metric.Unit {
	if u == "{event}" {
		return ""
	}
	return u
}

func (s *sink) describeHistogram(o *outline) (err error) {
	for _, c := range o.Keys {
		s.labels = append(s.labels, c.Key)
	}
	q := quantity{"duration", metric.Seconds, 1}
	switch o.Unit {
	case histogram.Values:
		q = quantity{"value", "{value}", 1}
	case histogram.Kilobytes:
		q = quantity{"size", metric.Bytes, 1}
	}
	s.hist, err = s.store.Histogram(metric.Description{
		Name: q.name(s.entry.name()), Unit: q.unit, Labels: s.labels, Help: help(o.summary),
	})
	return err
}

// help returns a text as the help of a metric: a sentence.
func help(text string) string { return text + "." }

// bind finds the columns of the labels and counters. The columns are the same in all calls of a run.
func (s *sink) bind(cols []column.Column) {
	s.label, s.values = make([]*column.Column, len(s.labels)), make([]string, len(s.labels))
	find := func(key string) *column.Column {
		if i := slices.IndexFunc(cols, func(c column.Column) bool { return c.Key == key }); i >= 0 {
			return &cols[i]
		}
		return nil
	}
	for i, key := range s.labels {
		s.label[i] = find(key)
	}
	for i := range s.counters {
		s.counters[i].col = find(s.counters[i].key)
	}
	for i := range s.gauges {
		s.gauges[i].col = find(s.gauges[i].key)
	}
	if s.recorder != nil {
		s.recorder.bind(cols)
	}
	s.bound = true
}

// labelValues returns the values of the labels of the row that the columns are bound to.
func (s *sink) labelValues() []string {
	for i, c := range s.label {
		s.values[i] = ""
		if c != nil && !c.Lacking && !c.Absent() {
			s.values[i] = labelValue(c)
		}
	}
	return s.values
}

// number returns the value of a numeric column.
func number(c *column.Column) (n float64, ok bool) {
	if c == nil || c.Lacking || c.Absent() {
		return 0, false
	}
	switch v := c.Any().(type) {
	case int:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// count counts a row or a histogram.
func (s *sink) count() {
	s.own.rows.Add(1, s.entry.name())
	s.runner.rows.Add(1)
}

// Row counts the row.
func (s *sink) Row(_ string, cols []column.Column) error {
	s.count()
	if !s.bound {
		s.bind(cols)
	}
	if s.recorder != nil {
		s.recorder.row()
	}
	if !s.entry.wantsMetrics() {
		return nil
	}
	values := s.labelValues()
	if s.events != nil {
		s.events.Add(1, values...)
	}
	for _, c := range s.counters {
		if c.col == nil || c.col.Lacking || c.col.Absent() {
			continue
		}
		if n, ok := c.col.Any().(int); ok && n >= 0 {
			c.Add(uint64(n), values...)
		}
	}
	for _, g := range s.gauges {
		if n, ok := number(g.col); ok {
			g.Set(n/g.divisor, values...)
		}
	}
	return nil
}

// Histogram adds the counts of an interval.
func (s *sink) Histogram(_ value.Time, key []column.Column, h *histogram.Histogram) error {
	s.count()
	if !s.entry.wantsMetrics() {
		return nil
	}
	if !s.bound {
		s.bind(key)
	}
	delta, values := h.Exponential(), s.labelValues()
	s.hist.Add(&delta, values...)
	for _, e := range h.Exemplars() {
		s.hist.Exemplar(exemplar(&e), values...)
	}
	return nil
}

// exemplar returns an exemplar with the names of its task and container.
func exemplar(e *histogram.Exemplar) metric.Exemplar {
	labels := []metric.Label{{Name: "pid", Value: strconv.Itoa(int(e.PID))}, {Name: "comm", Value: e.Comm.String()}}
	if e.Container != "" {
		labels = append(labels, metric.Label{Name: "container", Value: e.Container})
	}
	return metric.Exemplar{Value: e.Value, Time: time.Unix(0, int64(e.Time)), Labels: labels}
}

// Profile sends the stacks of an interval.
func (s *sink) Profile(p *flame.Profile) error {
	s.count()
	var errs []error
	for _, to := range s.profiles {
		errs = append(errs, to.Export(s.entry.eventName(), p))
	}
	return errors.Join(errs...)
}

// Ready reports that all hooks are attached.
func (s *sink) Ready(output.Ready) error {
	s.own.up.Set(1, s.entry.name())
	s.runner.setState(nil)
	return nil
}

// Lost counts lost events by reason.
func (s *sink) Lost(l output.Lost) error {
	for reason, n := range l.Reasons {
		s.addLost(reason, n)
	}
	return nil
}

func (s *sink) addLost(reason string, n uint64) {
	if s.lost == nil {
		s.lost = map[string]uint64{}
	}
	s.lost[reason] += n
	s.own.lost.Add(n, s.entry.name(), reason)
}

// Summary counts what was lost after the last call of Lost.
func (s *sink) Summary(sum output.Summary) error {
	for reason, n := range sum.Reasons {
		s.addLost(reason, n-min(n, s.lost[reason]))
	}
	return nil
}
