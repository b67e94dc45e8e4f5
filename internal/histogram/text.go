package histogram

import (
	"bytes"
	"fmt"
	"math/bits"
	"strconv"
)

// Bar is one line of a text histogram: the number of durations from Lo to Hi whole units,
// both inclusive. The first bar is 0 to 1, each further bar starts at a power of two.
type Bar struct {
	Lo, Hi, Count uint64
}

// Bars returns the histogram in power-of-two bars of the unit, from 0 to the last
// non-empty bar. The counts are exact, because slots nest in bars. It panics if slots are exponential.
func (h *Histogram) Bars() []Bar {
	if h.exponential {
		panic("histogram: bars of exponential slots")
	}
	if len(h.cells) == 0 {
		return nil
	}
	bars := make([]Bar, h.barOf(h.cells[len(h.cells)-1].slot)+1)
	for i := range bars {
		bars[i].Lo, bars[i].Hi = 1<<i, 1<<i<<1-1
	}
	bars[0].Lo = 0
	for _, c := range h.cells {
		bars[h.barOf(c.slot)].Count += c.Count
	}
	return bars
}

func (h *Histogram) barOf(slot int) int {
	lo, _ := h.unit.Bounds(slot)
	return max(0, bits.Len64(lo/h.unit.ns())-1)
}

// AppendText is AppendNamed with the name of the unit.
func (h *Histogram) AppendText(dst []byte) []byte { return h.AppendNamed(dst, h.unit.String()) }

// AppendNamed appends the bars of the values with this name in the layout of libbpf-tools, and a line with the count,
// mean, percentiles and maximum in the unit. The numbers are exact decimals; the mean and
// the percentiles are rounded to nanoseconds, the mean of plain numbers to two decimals. For an empty histogram it appends only the
// line "count 0".
func (h *Histogram) AppendNamed(dst []byte, name string) []byte {
	dst = h.appendBars(dst, name)
	dst = append(dst, "count "...)
	dst = strconv.AppendUint(dst, h.total.Count, 10)
	if h.total.Count > 0 {
		dst = h.appendStats(dst)
	}
	return append(dst, '\n')
}

// AppendSlots is AppendText for small integers: it appends a line per slot, which below 32 is a line
// per value, and none before the first value if that is 32 or more, in the layout of libbpf-tools for linear histograms. name is the name of the values.
func (h *Histogram) AppendSlots(dst []byte, name string) []byte {
	if len(h.cells) > 0 {
		dst = h.appendSlots(dst, name)
	}
	dst = append(dst, "count "...)
	dst = strconv.AppendUint(dst, h.total.Count, 10)
	if h.total.Count > 0 {
		dst = h.appendStats(dst)
	}
	return append(dst, '\n')
}

func (h *Histogram) appendSlots(dst []byte, name string) []byte {
	counts := make([]uint64, h.cells[len(h.cells)-1].slot+1)
	var maxCount uint64
	for _, c := range h.cells {
		counts[c.slot] = c.Count
		maxCount = max(maxCount, c.Count)
	}
	l := newLayout(nil, maxCount)
	dst = fmt.Appendf(dst, "     %-13s : %-*s distribution\n", name, l.count, "count")
	first := 0
	if h.cells[0].slot >= 32 { // the first values are far from 0
		first = h.cells[0].slot
	}
	for slot, count := range counts[first:] {
		lo, hi := h.bounds(first + slot)
		values := strconv.FormatUint(lo, 10)
		if hi-lo > 1 {
			values += " -> " + strconv.FormatUint(hi-1, 10)
		}
		dst = l.appendStars(fmt.Appendf(dst, "        %-10s : %-*d ", values, l.count, count), count, maxCount)
	}
	return dst
}

func (h *Histogram) appendStats(dst []byte) []byte {
	stat := func(name string, ns uint64) {
		dst = append(dst, ", "...)
		dst = append(dst, name...)
		dst = append(dst, ' ')
		dst = h.unit.appendDecimal(dst, ns)
	}
	dst = h.appendMean(append(dst, ", mean "...), 2)
	stat("p50", h.percentile(50))
	stat("p90", h.percentile(90))
	stat("p99", h.percentile(99))
	stat("p99.9", h.percentile(99.9))
	stat("max", h.total.Max)
	return dst
}

// layout holds the column widths of a text histogram.
type layout struct {
	indent, title, bound, count, stars int
}

// newLayout returns the widths for the bars. Bounds of more than ten digits get wider
// columns, as in libbpf-tools; unlike there, large counts widen the count column.
func newLayout(bars []Bar, maxCount uint64) layout {
	l := layout{indent: 5, title: 19, bound: 10, count: 8, stars: 40}
	if len(bars) > 33 {
		l = layout{indent: 15, title: 29, bound: 20, count: 8, stars: 20}
	}
	l.count = max(l.count, len(strconv.FormatUint(maxCount, 10)))
	return l
}

func (h *Histogram) appendBars(dst []byte, name string) []byte {
	bars := h.Bars()
	if len(bars) == 0 {
		return dst
	}
	var maxCount uint64
	for _, b := range bars {
		maxCount = max(maxCount, b.Count)
	}
	l := newLayout(bars, maxCount)
	dst = fmt.Appendf(dst, "%*s%-*s : %-*s distribution\n", l.indent, "", l.title, name, l.count, "count")
	for _, b := range bars {
		dst = l.appendBar(dst, b, maxCount)
	}
	return dst
}

func (l *layout) appendBar(dst []byte, b Bar, maxCount uint64) []byte {
	dst = fmt.Appendf(dst, "%*d -> %-*d : %-*d ", l.bound, b.Lo, l.bound, b.Hi, l.count, b.Count)
	return l.appendStars(dst, b.Count, maxCount)
}

// appendStars appends the bar of a count and ends the line.
func (l *layout) appendStars(dst []byte, count, maxCount uint64) []byte {
	hi, lo := bits.Mul64(count, uint64(l.stars))
	stars, _ := bits.Div64(hi, lo, maxCount)
	line := bytes.Repeat([]byte{' '}, l.stars)
	for i := range stars {
		line[i] = '*'
	}
	return fmt.Appendf(dst, "|%s|\n", line)
}

// appendDecimal appends ns as an exact decimal in the unit, without trailing zeros.
func (u Unit) appendDecimal(dst []byte, ns uint64) []byte {
	dst = strconv.AppendUint(dst, ns/u.ns(), 10)
	rest, one := ns%u.ns(), u.ns()
	if rest == 0 {
		return dst
	}
	if u == Kilobytes {
		rest, one = rest*(1e10/1024), 1e10 // the smallest power of ten that 1,024 divides
	}
	point := len(dst)
	// Adding one unit preserves leading zeros; its digit 1 is overwritten by the point.
	dst = strconv.AppendUint(dst, one+rest, 10)
	dst[point] = '.'
	return bytes.TrimRight(dst, "0")
}
