package prometheus

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/metric"
)

// textWriter appends metrics in the text format of Prometheus (version 0.0.4) or in that of
// OpenMetrics 1.0. Both have classic buckets only; exemplars and units are in the latter.
type textWriter struct {
	open    bool // OpenMetrics
	out     []byte
	buckets []classicBucket
}

func (w *textWriter) all(snapshots []metric.Snapshot) {
	for i := range snapshots {
		w.metric(&snapshots[i])
	}
	if w.open {
		w.out = append(w.out, "# EOF\n"...)
	}
}

func (w *textWriter) metric(s *metric.Snapshot) {
	name := Name(s)
	family := name
	if w.open {
		family = base(s)
	}
	help := strings.NewReplacer("\\", `\\`, "\n", `\n`)
	if w.open {
		help = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
	}
	w.add("# HELP ", family, " ", help.Replace(s.Help), "\n# TYPE ", family, " ", s.Kind.String(), "\n")
	if unit := unitName(s.Unit); w.open && unit != "" {
		w.add("# UNIT ", family, " ", unit, "\n")
	}
	for i := range s.Series {
		series := &s.Series[i]
		switch {
		case series.Histogram != nil:
			w.histogram(name, s.Unit, series)
		default:
			w.add(name)
			w.labels(series, "")
			w.add(" ")
			if s.Whole {
				w.out = strconv.AppendUint(w.out, series.Whole, 10)
			} else {
				w.number(series.Value, false)
			}
			w.add("\n")
		}
	}
}

func (w *textWriter) add(texts ...string) {
	for _, s := range texts {
		w.out = append(w.out, s...)
	}
}

func (w *textWriter) histogram(name string, unit metric.Unit, series *metric.Series) {
	d := series.Histogram
	w.buckets = classic(w.buckets[:0], d, unit)
	for _, b := range w.buckets {
		w.add(name, "_bucket")
		mark := len(w.out)
		w.number(b.bound, w.open)
		bound := string(w.out[mark:])
		w.out = w.out[:mark]
		w.labels(series, bound)
		w.add(" ")
		w.out = strconv.AppendUint(w.out, b.count, 10)
		if w.open && b.exemplar != nil {
			w.exemplar(b.exemplar)
		}
		w.add("\n")
	}
	w.add(name, "_sum")
	w.labels(series, "")
	w.add(" ")
	w.number(d.Sum, false)
	w.add("\n", name, "_count")
	w.labels(series, "")
	w.add(" ")
	w.out = strconv.AppendUint(w.out, d.Count, 10)
	w.add("\n")
}

func (w *textWriter) exemplar(e *metric.Exemplar) {
	w.add(" # {")
	for i, l := range e.Labels {
		if i > 0 {
			w.add(",")
		}
		w.label(l.Name, l.Value)
	}
	w.add("} ")
	w.number(e.Value, false)
	w.add(" ")
	w.out = strconv.AppendFloat(w.out, seconds(e.Time), 'f', 3, 64)
}

func seconds(t time.Time) float64 {
	return float64(t.UnixMilli()) / 1e3
}

// labels appends the labels of a series, and le unless it is "".
func (w *textWriter) labels(series *metric.Series, le string) {
	separator := "{"
	for _, l := range series.Labels {
		w.add(separator)
		w.label(l.Name, l.Value)
		separator = ","
	}
	if series.Overflow {
		w.add(separator)
		w.label(overflowLabel, "true")
		separator = ","
	}
	if le != "" {
		w.add(separator)
		w.label("le", le)
		separator = ","
	}
	if separator == "," {
		w.add("}")
	}
}

func (w *textWriter) label(name, value string) {
	w.add(name, `="`)
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			w.out = append(w.out, '\\', c)
		case '\n':
			w.add(`\n`)
		default:
			w.out = append(w.out, c)
		}
	}
	w.add(`"`)
}

// number appends a number. A number with a fraction always has a point, so that bounds are written
// in the same way by all exporters.
func (w *textWriter) number(v float64, fraction bool) {
	switch {
	case math.IsInf(v, 1):
		w.add("+Inf")
	case math.IsInf(v, -1):
		w.add("-Inf")
	case math.IsNaN(v):
		w.add("NaN")
	default:
		mark := len(w.out)
		w.out = strconv.AppendFloat(w.out, v, 'g', -1, 64)
		if fraction && !strings.ContainsAny(string(w.out[mark:]), ".e") {
			w.add(".0")
		}
	}
}
