package heatmap

import (
	"cmp"
	_ "embed"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/corescope/corescope/internal/histogram"
)

//go:embed heatmap.css
var style string

//go:embed heatmap.js
var script string

// colours is the number of colours of heatmap.css.
const colours = 8

// Sizes in pixels.
const (
	plotWidth  = 900
	left       = 72 // labels of rows
	labelSpace = 14 // least distance of the labels of rows
	timeSpace  = 90 // least distance of the labels of columns in an image
	minHeight  = 112
	maxHeight  = 420
	rowHeight  = 8
)

// SVG writes the heat maps as an image without scripts.
func (r *Recorder) SVG(w io.Writer) error {
	d := newDocument(r)
	height := 64
	for _, m := range d.maps {
		height += m.height() + 62
	}
	d.printf(`<?xml version="1.0" encoding="UTF-8" standalone="no"?>` + "\n")
	d.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d">`+"\n<style>%s</style>\n", left+plotWidth+16, height, style)
	d.printf("<rect class=\"back\" width=\"100%%\" height=\"100%%\"/>\n<text class=\"title\" x=\"8\" y=\"18\">%s</text>\n", html.EscapeString(d.title()))
	d.printf("<text class=\"soft\" x=\"8\" y=\"34\">%s</text>\n", html.EscapeString(d.notes()))
	d.legendSVG()
	y := 64
	for _, m := range d.maps {
		d.mapSVG(m, y)
		y += m.height() + 62
	}
	d.printf("</svg>\n")
	_, err := w.Write(d.b)
	return err
}

// HTML writes the heat maps as a page with a script for zoom. It needs no other files.
func (r *Recorder) HTML(w io.Writer) error {
	d := newDocument(r)
	d.printf("<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>%s</title>\n<style>%s</style></head>\n<body>\n",
		html.EscapeString(r.title), style)
	d.printf("<header><h1>%s</h1><button id=\"reset\" hidden>reset zoom</button></header>\n", html.EscapeString(d.title()))
	d.printf("<p class=\"soft\">%s</p>\n", html.EscapeString(d.notes()))
	d.legendHTML()
	d.printf("<main data-times=\"%s\">\n", strings.Join(d.times(), " "))
	for _, m := range d.maps {
		d.mapHTML(m)
	}
	d.printf("</main>\n<footer id=\"details\">Point at a cell to see its count. Drag to zoom.</footer>\n<script>%s</script>\n</body>\n</html>\n", script)
	_, err := w.Write(d.b)
	return err
}

// document is a page or an image that is being written.
type document struct {
	*Recorder
	maps []drawn
	// least is the least count of each level of colour, in ascending order.
	least []uint64
	b     []byte
}

// drawn is one map: a series and the rows to show, from lo to hi inclusive.
type drawn struct {
	*series
	title  string
	unit   histogram.Unit
	lo, hi int
	totals []uint64 // number of values per column
}

func newDocument(r *Recorder) *document {
	d := &document{Recorder: r}
	var most uint64
	all := slices.Clone(r.series)
	slices.SortStableFunc(all, byCount)
	if r.rest != nil {
		all = append(all, r.rest)
	}
	for _, s := range all {
		m := drawn{series: s, title: s.key, unit: r.unit, lo: math.MaxInt, totals: make([]uint64, len(r.columns))}
		if s == r.rest {
			m.title = fmt.Sprintf("keys after the first %d", maxKeys)
		}
		for _, c := range s.cells {
			m.lo, m.hi = min(m.lo, c.row), max(m.hi, c.row)
			m.totals[c.column] += c.count
			most = max(most, c.count)
		}
		if s.count > 0 {
			d.maps = append(d.maps, m)
		}
	}
	d.least = levels(most)
	return d
}

// byCount orders series by their number of values, largest first.
func byCount(a, b *series) int {
	return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.key, b.key))
}

// levels returns the least count of each level. Levels grow by the same factor.
func levels(most uint64) (least []uint64) {
	for i := range colours {
		n := uint64(math.Ceil(math.Pow(float64(most)+1, float64(i)/colours) * (1 - 1e-9))) // not rounded up by an error of Pow
		if n = max(1, n); n <= most && (len(least) == 0 || n > least[len(least)-1]) {
			least = append(least, n)
		}
	}
	return least
}

// colour returns the colour of a level: the darkest for the highest.
func (d *document) colour(level int) int {
	if len(d.least) < 2 {
		return colours - 1
	}
	return level * (colours - 1) / (len(d.least) - 1)
}

func (d *document) colourOf(count uint64) int {
	level := 0
	for level+1 < len(d.least) && d.least[level+1] <= count {
		level++
	}
	return d.colour(level)
}

func (d *document) printf(format string, args ...any) { d.b = fmt.Appendf(d.b, format, args...) }

// title returns the title of the document: the tool, the number of values, the duration and the start.
func (d *document) title() string {
	if len(d.columns) == 0 {
		return d.Recorder.title + ": no interval"
	}
	var count uint64
	for _, m := range d.maps {
		count += m.count
	}
	begin, end := d.columns[0].begin, d.columns[len(d.columns)-1].end
	return fmt.Sprintf("%s: %d values in %s from %s", d.Recorder.title, count, end.Sub(begin).Round(time.Millisecond), begin.Format(time.DateTime))
}

// notes states what the axes and colours mean, and what is missing.
func (d *document) notes() string {
	if len(d.maps) == 0 {
		return strings.TrimSpace("No values were counted. " + d.lost)
	}
	length := "An interval"
	if d.per > 1 {
		length = strconv.Itoa(d.per) + " intervals"
	}
	total := d.columns[len(d.columns)-1].end.Sub(d.columns[0].begin)
	values := d.unit.String()
	if d.values != "" {
		values = d.values
	}
	text := fmt.Sprintf("%s of about %s per column; rows: %s; colour: number of values.", length,
		(total / time.Duration(d.added)).Round(time.Millisecond), values)
	return strings.TrimSpace(text + " " + d.lost)
}

// legend returns the text of a level of colour.
func (d *document) legend(level int) string {
	text := strconv.FormatUint(d.least[level], 10)
	switch {
	case level+1 == len(d.least):
		return text + "+"
	case d.least[level+1]-d.least[level] > 1:
		return text + "-" + strconv.FormatUint(d.least[level+1]-1, 10)
	}
	return text
}

func (d *document) legendSVG() {
	x := 8
	for i := range d.least {
		text := d.legend(i)
		d.printf(`<rect class="h%d" x="%d" y="42" width="12" height="12"/><text x="%d" y="52">%s</text>`+"\n", d.colour(i), x, x+16, text)
		x += 28 + 8*utf8.RuneCountInString(text)
	}
}

func (d *document) legendHTML() {
	d.printf("<p class=\"legend\">")
	for i := range d.least {
		d.printf("<span><i class=\"h%d\"></i>%s</span>", d.colour(i), d.legend(i))
	}
	d.printf("</p>\n")
}

// times returns the begin of each column as text.
func (d *document) times() []string {
	texts := make([]string, len(d.columns))
	for i, c := range d.columns {
		texts[i] = clock(c.begin)
	}
	return texts
}

// clock returns the time of day, with milliseconds if it has them.
func clock(t time.Time) string {
	if t.Round(time.Millisecond).Nanosecond() < int(time.Millisecond) {
		return t.Round(time.Millisecond).Format(time.TimeOnly)
	}
	return t.Format("15:04:05.000")
}

func (m *drawn) rows() int   { return m.hi - m.lo + 1 }
func (m *drawn) height() int { return min(max(m.rows()*rowHeight, minHeight), maxHeight) }

// heading returns the key and the number of values.
func (m *drawn) heading() string {
	if m.title == "" {
		return fmt.Sprintf("%d values", m.count)
	}
	return fmt.Sprintf("%s: %d values", m.title, m.count)
}

// label is the lower bound of a row. It is major if it fits without zoom.
type label struct {
	row   int
	text  string
	major bool
}

// labels returns the labels of all rows from the lowest one. Powers of two are preferred.
func (m *drawn) labels() []label {
	labels := make([]label, 0, m.rows())
	for row := m.lo; row <= m.hi; row++ {
		lo, _ := bounds(m.unit, row)
		labels = append(labels, label{row: row, text: shown(m.unit, lo)})
	}
	pixels := float64(m.height()) / float64(m.rows())
	last := math.Inf(-1)
	for i := range labels {
		isPower := labels[i].row < 16 || labels[i].row%4 == 0
		if at := float64(i) * pixels; isPower && at-last >= labelSpace {
			labels[i].major, last = true, at
		}
	}
	return labels
}

// cells writes the cells in a coordinate system with one unit per column and row.
func (d *document) cells(m drawn) {
	for i := range m.cells {
		c := &m.cells[i]
		lo, hi := bounds(m.unit, c.row)
		span := d.columns[c.column]
		d.printf(`<rect class="h%d" x="%d" y="%d" width="1" height="1"><title>%s to %s, %s: %d of %d</title></rect>`+"\n",
			d.colourOf(c.count), c.column, m.hi-c.row, clock(span.begin), clock(span.end), interval(m.unit, lo, hi), c.count, m.totals[c.column])
	}
}

func (d *document) mapSVG(m drawn, y int) {
	heading := html.EscapeString(m.heading())
	d.printf(`<text class="key" x="%d" y="%d">%s<title>%s</title></text>`+"\n", left, y+16, html.EscapeString(clip(m.heading(), 120)), heading)
	y += 24
	pixels := float64(m.height()) / float64(m.rows())
	for i, l := range m.labels() {
		if l.major {
			d.printf(`<text class="value" x="%d" y="%.1f">%s</text>`+"\n", left-6, float64(y+m.height())-float64(i)*pixels, l.text)
		}
	}
	d.printf(`<rect class="frame" x="%d" y="%d" width="%d" height="%d"/>`+"\n", left, y, plotWidth, m.height())
	d.printf(`<svg x="%d" y="%d" width="%d" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none">`+"\n", left, y, plotWidth, m.height(), len(d.columns), m.rows())
	d.cells(m)
	d.printf("</svg>\n")
	width := float64(plotWidth) / float64(len(d.columns))
	last := math.Inf(-1)
	for i, text := range d.times() {
		if x := float64(i) * width; x-last >= timeSpace && x+timeSpace <= plotWidth+16 {
			d.printf(`<text class="time" x="%.1f" y="%d">%s</text>`+"\n", left+x, y+m.height()+14, text)
			last = x
		}
	}
}

func (d *document) mapHTML(m drawn) {
	d.printf("<figure><figcaption>%s</figcaption>\n<div class=\"values\" style=\"height:%dpx\">", html.EscapeString(m.heading()), m.height())
	for i, l := range m.labels() {
		hidden := ""
		if !l.major {
			hidden = " hidden"
		}
		d.printf(`<span data-row="%d" style="bottom:%.2f%%"%s>%s</span>`, i, 100*float64(i)/float64(m.rows()), hidden, l.text)
	}
	d.printf("</div>\n<svg height=\"%d\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\">\n", m.height(), len(d.columns), m.rows())
	d.cells(m)
	d.printf("</svg>\n<div class=\"times\"></div></figure>\n")
}

// clip shortens a text to a number of characters.
func clip(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-2]) + ".."
	}
	return text
}

// interval returns a range of values: "3", "4us to 5us".
func interval(u histogram.Unit, lo, hi uint64) string {
	switch {
	case hi-lo == 1:
		return shown(u, lo)
	case u == histogram.Values:
		return shown(u, lo) + " to " + shown(u, hi-1)
	}
	return shown(u, lo) + " to " + shown(u, hi)
}

// shown returns a value with at most three digits after the point, and its unit.
func shown(u histogram.Unit, v uint64) string {
	type scale struct {
		n    uint64
		name string
	}
	scales := []scale{{1, "ns"}, {1e3, "us"}, {1e6, "ms"}, {1e9, "s"}}
	switch u {
	case histogram.Values:
		return strconv.FormatUint(v, 10)
	case histogram.Kilobytes:
		scales = []scale{{1, "B"}, {1 << 10, "KiB"}, {1 << 20, "MiB"}, {1 << 30, "GiB"}}
	}
	s := scales[0]
	for _, next := range scales[1:] {
		if v >= next.n {
			s = next
		}
	}
	text := strconv.FormatFloat(float64(v)/float64(s.n), 'f', 3, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".") + s.name
}
