package source

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/output"
)

// Percentiles are percentiles as the user has written them: "50", "99.90".
type Percentiles []string

// Check returns an error unless each is a number from 0 to 100, and none is given twice.
func (p Percentiles) Check() error {
	seen := map[float64]string{}
	for _, text := range p {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n <= 100) {
			return fmt.Errorf("%q is not a percentile: want a number from 0 to 100", text)
		}
		if first, ok := seen[n]; ok {
			return fmt.Errorf("percentile %s is given twice, as %s and %s: give each only once", strconv.FormatFloat(n, 'f', -1, 64), first, text)
		}
		seen[n] = text
	}
	return nil
}

// of returns the percentile of the histogram, in its unit.
func of(h *histogram.Histogram, p string) float64 {
	n, _ := strconv.ParseFloat(p, 64) // see Check
	return h.Percentile(n)
}

// appendPercentileTitles appends the titles of a table with one line per histogram: the columns of
// the key, the number of values and the percentiles.
func (r *histReport) appendPercentileTitles(b []byte, key []column.Column) []byte {
	for i := range key {
		b = fmt.Appendf(b, "%-*s ", key[i].Width, key[i].Header)
	}
	b = append(b, "   COUNT"...)
	for _, p := range r.percentiles {
		b = fmt.Appendf(b, " %7s", "p"+p)
	}
	return append(b, '\n')
}

func (r *histReport) appendPercentiles(b []byte, key []column.Column, h *histogram.Histogram) []byte {
	for i := range key {
		b = fmt.Appendf(b, "%-*s ", key[i].Width, key[i].AppendText(nil))
	}
	b = fmt.Appendf(b, "%8d", h.Count())
	for _, p := range r.percentiles {
		b = fmt.Appendf(b, " %7s", short(of(h, p)*float64(h.Unit())))
	}
	return append(b, '\n')
}

// appendPercentileCells appends the line of a histogram in CSV: time, key, unit, number of values and
// percentiles.
func (r *histReport) appendPercentileCells(b []byte, key []column.Column, h *histogram.Histogram) []byte {
	b = r.appendCSVKey(b, key, h)
	b = strconv.AppendUint(append(b, ','), h.Count(), 10)
	for _, p := range r.percentiles {
		b = append(b, ',')
		if h.Count() > 0 {
			b = strconv.AppendFloat(b, of(h, p), 'f', -1, 64)
		}
	}
	return append(b, '\n')
}

// appendPercentilesJSON appends the line of a histogram with its member percentiles.
func (r *histReport) appendPercentilesJSON(b []byte, key []column.Column, h *histogram.Histogram) []byte {
	b = output.AppendHistogram(b, r.time, key, h)
	b = append(b[:len(b)-len("}\n")], `,"percentiles":{`...)
	for i, p := range r.percentiles {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, p), ':')
		if h.Count() == 0 {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, of(h, p), 'f', -1, 64)
		}
	}
	return append(b, "}}\n"...)
}

// short returns a number of nanoseconds with at least two digits and a unit: 950ns, 9.5us, 12ms.
func short(ns float64) string {
	if math.IsNaN(ns) {
		return "-"
	}
	unit, name := time.Nanosecond, "ns"
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Microsecond, "us"}, {time.Millisecond, "ms"}, {time.Second, "s"}} {
		if math.Round(ns/float64(unit)) >= 1000 {
			unit, name = u.unit, u.name
		}
	}
	n, digits := ns/float64(unit), 0
	if n < 9.95 && unit > time.Nanosecond {
		digits = 1
	}
	return strconv.FormatFloat(n, 'f', digits, 64) + name
}
