// Package prometheus serves the metrics of a [metric.Store] to Prometheus and other scrapers.
package prometheus

import (
	"math"
	"strings"

	"github.com/corescope/corescope/internal/metric"
)

// prefix is the prefix of all names.
const prefix = "corescope_"

// overflowLabel is the label of the series that stands for all series beyond the limit of a metric.
const overflowLabel = "otel_metric_overflow"

// Name returns the name of a metric, with its unit and "_total" for counters:
// corescope_runqlat_duration_seconds, corescope_opensnoop_events_total.
func Name(s *metric.Snapshot) string {
	name := base(s)
	if s.Kind == metric.KindCounter {
		name += "_total"
	}
	return name
}

// base returns the name without "_total".
func base(s *metric.Snapshot) string {
	name := prefix + strings.Join(s.Name, "_")
	if s.Kind == metric.KindCounter {
		name = strings.TrimSuffix(name, "_total")
	}
	if unit := unitName(s.Unit); unit != "" && !strings.HasSuffix(name, "_"+unit) {
		name += "_" + unit
	}
	return name
}

// unitName returns the name of a unit, or "" for a unit that is not part of names.
func unitName(u metric.Unit) string {
	switch u {
	case metric.Seconds:
		return "seconds"
	case metric.Bytes:
		return "bytes"
	case metric.One:
		return "ratio"
	}
	return ""
}

// octaves returns the range of k for the upper bounds 2^k of classic buckets: 1 us to 64 s, 1 byte
// to 1 GiB, 1 to a million. The bounds do not depend on the values, so those of several hosts can
// be added.
func octaves(u metric.Unit) (first, last int) {
	switch u {
	case metric.Seconds:
		return -20, 6
	case metric.Bytes:
		return 0, 30
	}
	return 0, 20
}

// classicBucket is a bucket with all values up to a bound.
type classicBucket struct {
	bound    float64
	count    uint64
	exemplar *metric.Exemplar // of the values above the previous bound
}

// classic appends the classic buckets of a distribution, the last of which has no bound. Powers of
// two are bounds of native buckets too, so counts are exact. If a negative schema has no such
// bound, it is left out.
func classic(dst []classicBucket, d *metric.Distribution, unit metric.Unit) []classicBucket {
	first, last := octaves(unit)
	sum, i, exemplar := d.Zero, 0, 0
	newest := func(bound float64) (e *metric.Exemplar) {
		for ; exemplar < len(d.Exemplars) && d.Exemplars[exemplar].Value <= bound; exemplar++ {
			if x := &d.Exemplars[exemplar]; e == nil || x.Time.After(e.Time) {
				e = x
			}
		}
		return e
	}
	for k := first; k <= last; k++ {
		index, ok := boundIndex(d.Schema, k)
		if !ok {
			continue
		}
		for ; i < len(d.Buckets) && d.Buckets[i].Index <= index; i++ {
			sum += d.Buckets[i].Count
		}
		bound := math.Ldexp(1, k)
		dst = append(dst, classicBucket{bound, sum, newest(bound)})
	}
	return append(dst, classicBucket{math.Inf(1), d.Count, newest(math.Inf(1))})
}

// boundIndex returns the index of the native bucket with the upper bound 2^k.
func boundIndex(schema, k int) (index int, ok bool) {
	if schema >= 0 {
		return k << schema, true
	}
	return k >> -schema, k&(1<<-schema-1) == 0
}
