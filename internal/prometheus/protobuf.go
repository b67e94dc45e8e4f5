package prometheus

import (
	"io"
	"math"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/corescope/corescope/internal/metric"
)

// writeProtobuf writes metrics in the protobuf format of Prometheus, each preceded by its length.
// Histograms have native buckets and, if requested, classic buckets too.
func writeProtobuf(w io.Writer, snapshots []metric.Snapshot, classicBuckets bool) error {
	for i := range snapshots {
		if _, err := protodelim.MarshalTo(w, family(&snapshots[i], classicBuckets)); err != nil {
			return err
		}
	}
	return nil
}

func family(s *metric.Snapshot, classicBuckets bool) *dto.MetricFamily {
	kind := map[metric.Kind]dto.MetricType{
		metric.KindCounter: dto.MetricType_COUNTER, metric.KindGauge: dto.MetricType_GAUGE, metric.KindHistogram: dto.MetricType_HISTOGRAM,
	}[s.Kind]
	f := &dto.MetricFamily{Name: proto.String(Name(s)), Help: proto.String(s.Help), Type: kind.Enum(), Metric: make([]*dto.Metric, len(s.Series))}
	if unit := unitName(s.Unit); unit != "" {
		f.Unit = proto.String(unit)
	}
	for i := range s.Series {
		series := &s.Series[i]
		m := &dto.Metric{Label: pairs(series.Labels)}
		if series.Overflow {
			m.Label = append(m.Label, pair(overflowLabel, "true"))
		}
		created := timestamppb.New(series.Created)
		switch s.Kind {
		case metric.KindCounter:
			m.Counter = &dto.Counter{Value: proto.Float64(series.Value), CreatedTimestamp: created}
		case metric.KindGauge:
			m.Gauge = &dto.Gauge{Value: proto.Float64(series.Value)}
		case metric.KindHistogram:
			m.Histogram = native(series.Histogram)
			m.Histogram.CreatedTimestamp = created
			addClassic(m.Histogram, series.Histogram, s.Unit, classicBuckets)
		}
		f.Metric[i] = m
	}
	return f
}

func pair(name, value string) *dto.LabelPair {
	return &dto.LabelPair{Name: proto.String(name), Value: proto.String(value)}
}

func pairs(labels []metric.Label) []*dto.LabelPair {
	out := make([]*dto.LabelPair, len(labels))
	for i, l := range labels {
		out[i] = pair(l.Name, l.Value)
	}
	return out
}

func exemplar(e *metric.Exemplar) *dto.Exemplar {
	return &dto.Exemplar{Label: pairs(e.Labels), Value: proto.Float64(e.Value), Timestamp: timestamppb.New(e.Time)}
}

// maxGap is the number of empty buckets that take less space than the begin of another span.
const maxGap = 2

// native returns the native buckets. A histogram with a span, which may be empty, is a native one.
func native(d *metric.Distribution) *dto.Histogram {
	h := &dto.Histogram{
		SampleCount: proto.Uint64(d.Count), SampleSum: proto.Float64(d.Sum), Schema: proto.Int32(int32(d.Schema)),
		ZeroThreshold: proto.Float64(0), ZeroCount: proto.Uint64(d.Zero), PositiveDelta: make([]int64, 0, len(d.Buckets)),
	}
	var span *dto.BucketSpan
	next, previous := 0, uint64(0)
	add := func(count uint64) {
		h.PositiveDelta = append(h.PositiveDelta, int64(count-previous))
		*span.Length++
		previous = count
	}
	for _, b := range d.Buckets {
		gap := b.Index - next
		if span == nil || gap > maxGap {
			span = &dto.BucketSpan{Offset: proto.Int32(int32(gap)), Length: proto.Uint32(0)}
			h.PositiveSpan = append(h.PositiveSpan, span)
		} else {
			for range gap {
				add(0)
			}
		}
		add(b.Count)
		next = b.Index + 1
	}
	if span == nil {
		h.PositiveSpan = []*dto.BucketSpan{{Offset: proto.Int32(0), Length: proto.Uint32(0)}}
	}
	return h
}

// addClassic adds the classic buckets, or only those with an exemplar. A scraper of native buckets
// takes the exemplars of classic ones if there are no others. Prometheus 3.12 reads exemplars of
// native histograms (the field exemplars) only of the first series of a metric.
func addClassic(h *dto.Histogram, d *metric.Distribution, unit metric.Unit, all bool) {
	if !all && len(d.Exemplars) == 0 {
		return
	}
	buckets := classic(nil, d, unit)
	for _, b := range buckets {
		// The last bucket, which has all values, is implied.
		if b.exemplar == nil && (!all || math.IsInf(b.bound, 1)) {
			continue
		}
		bucket := &dto.Bucket{CumulativeCount: proto.Uint64(b.count), UpperBound: proto.Float64(b.bound)}
		if b.exemplar != nil {
			bucket.Exemplar = exemplar(b.exemplar)
		}
		h.Bucket = append(h.Bucket, bucket)
	}
}
