package otlp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	proto "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/corescope/corescope/internal/metric"
	"github.com/corescope/corescope/internal/push"
)

// Metrics sends the state of metrics. It is safe for concurrent use.
type Metrics struct {
	sender   *push.Sender
	envelope envelope
}

// NewMetrics starts to send.
func NewMetrics(c Config, resource []Attribute, version string) (*Metrics, error) {
	sender, err := c.sender()
	if err != nil {
		return nil, err
	}
	return &Metrics{sender, newEnvelope(resource, version)}, nil
}

// maxPoints is the limit of data points that are encoded together.
const maxPoints = 200

// Export sends the state of metrics at some time. It never waits for the network. Names are
// corescope.TOOL.COLUMN, counters and histograms are cumulative, and histograms are exponential ones.
func (m *Metrics) Export(snapshots []metric.Snapshot, at time.Time) error {
	var pending []byte
	var items uint64
	flush := func() {
		if items > 0 {
			m.sender.Send(push.Request{Body: m.envelope.wrap(pending), ContentType: contentType, Items: items})
		}
		pending, items = pending[:0], 0
	}
	for i := range snapshots {
		for series := range slices.Chunk(snapshots[i].Series, maxPoints) {
			encoded, err := protobuf.Marshal(message(&snapshots[i], series, at))
			if err != nil {
				return fmt.Errorf("encode metric %q: %w", snapshots[i].Name, err)
			}
			if len(pending)+len(encoded) > maxRequest {
				flush()
			}
			pending = protowire.AppendTag(pending, fieldRecords, protowire.BytesType)
			pending = protowire.AppendBytes(pending, encoded)
			items += uint64(len(series))
		}
	}
	flush()
	return nil
}

// Stats returns the counts of data points.
func (m *Metrics) Stats() push.Stats { return m.sender.Stats() }

// Close sends what is waiting, see [push.Sender.Close].
func (m *Metrics) Close(ctx context.Context) error { return m.sender.Close(ctx) }

// MetricName returns the name of a metric: corescope.runqlat.duration.
func MetricName(s *metric.Snapshot) string {
	return "corescope." + strings.Join(s.Name, ".")
}

func message(s *metric.Snapshot, series []metric.Series, at time.Time) *proto.Metric {
	m := &proto.Metric{Name: MetricName(s), Description: s.Help, Unit: string(s.Unit)}
	if s.Kind == metric.KindHistogram {
		points := make([]*proto.ExponentialHistogramDataPoint, len(series))
		for i := range series {
			points[i] = histogramPoint(&series[i], at)
		}
		m.Data = &proto.Metric_ExponentialHistogram{ExponentialHistogram: &proto.ExponentialHistogram{
			DataPoints: points, AggregationTemporality: proto.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE,
		}}
		return m
	}
	points := make([]*proto.NumberDataPoint, len(series))
	for i := range series {
		points[i] = numberPoint(s, &series[i], at)
	}
	if s.Kind == metric.KindGauge {
		m.Data = &proto.Metric_Gauge{Gauge: &proto.Gauge{DataPoints: points}}
	} else {
		m.Data = &proto.Metric_Sum{Sum: &proto.Sum{
			DataPoints: points, IsMonotonic: true, AggregationTemporality: proto.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE,
		}}
	}
	return m
}

func numberPoint(s *metric.Snapshot, series *metric.Series, at time.Time) *proto.NumberDataPoint {
	p := &proto.NumberDataPoint{Attributes: attributes(series), TimeUnixNano: uint64(at.UnixNano())}
	if s.Kind == metric.KindCounter {
		p.StartTimeUnixNano = start(series, at)
	}
	if whole := int64(series.Whole); s.Whole && whole >= 0 {
		p.Value = &proto.NumberDataPoint_AsInt{AsInt: whole}
	} else {
		p.Value = &proto.NumberDataPoint_AsDouble{AsDouble: series.Value}
	}
	return p
}

// start returns the time of creation. It is before the time of the point.
func start(series *metric.Series, at time.Time) uint64 {
	return uint64(min(series.Created.UnixNano(), at.UnixNano()-1))
}

func histogramPoint(series *metric.Series, at time.Time) *proto.ExponentialHistogramDataPoint {
	d := series.Histogram
	p := &proto.ExponentialHistogramDataPoint{
		Attributes: attributes(series), StartTimeUnixNano: start(series, at), TimeUnixNano: uint64(at.UnixNano()),
		Count: d.Count, Sum: &d.Sum, Scale: int32(d.Schema), ZeroCount: d.Zero,
	}
	if n := len(d.Buckets); n > 0 {
		first := d.Buckets[0].Index
		counts := make([]uint64, d.Buckets[n-1].Index-first+1)
		for _, b := range d.Buckets {
			counts[b.Index-first] = b.Count
		}
		// Bucket i of OpenTelemetry has the lower bound that bucket i of Prometheus has as upper bound.
		p.Positive = &proto.ExponentialHistogramDataPoint_Buckets{Offset: int32(first - 1), BucketCounts: counts}
	}
	for i := range d.Exemplars {
		e := &d.Exemplars[i]
		x := &proto.Exemplar{TimeUnixNano: uint64(e.Time.UnixNano()), Value: &proto.Exemplar_AsDouble{AsDouble: e.Value}}
		x.FilteredAttributes = keyValues(e.Labels)
		p.Exemplars = append(p.Exemplars, x)
	}
	return p
}

func attributes(series *metric.Series) []*common.KeyValue {
	out := keyValues(series.Labels)
	if series.Overflow {
		out = append(out, &common.KeyValue{Key: "otel.metric.overflow", Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: true}}})
	}
	return out
}

func keyValues(labels []metric.Label) []*common.KeyValue {
	inPod := slices.ContainsFunc(labels, func(l metric.Label) bool { return l.Name == "pod" })
	out := make([]*common.KeyValue, len(labels))
	for i, l := range labels {
		out[i] = &common.KeyValue{
			Key:   AttributeName(l.Name, inPod),
			Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: l.Value}},
		}
	}
	return out
}
