package heatmap

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/histogram"
)

var update = flag.Bool("update", false, "write the golden files")

func hist(u histogram.Unit, values ...uint64) *histogram.Histogram {
	h := histogram.New(u)
	for _, v := range values {
		h.Add(u.SlotOf(v), histogram.Slot{Count: 1, Sum: v, Min: v, Max: v})
	}
	return h
}

// start is the begin of the first interval.
func start() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// record adds one histogram per key and interval of a second.
func record(r *Recorder, intervals ...map[string]*histogram.Histogram) {
	at := start()
	for _, hists := range intervals {
		r.Begin(at, at.Add(time.Second))
		for key, h := range hists {
			r.Add(key, h)
		}
		r.End()
		at = at.Add(time.Second)
	}
}

func sample() *Recorder {
	r := New("biolatency", histogram.Microseconds, "")
	record(r,
		map[string]*histogram.Histogram{"disk = vda": hist(histogram.Microseconds, 100_000, 101_000, 900_000, 5_000_000)},
		map[string]*histogram.Histogram{},
		map[string]*histogram.Histogram{
			"disk = vda":                hist(histogram.Microseconds, 100_000),
			"disk = <b>&\"\x1b\x00\xff": hist(histogram.Microseconds, 250),
		},
	)
	return r
}

func render(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// withoutStyle removes style and script, which are files of their own.
func withoutStyle(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, style, ""), script, "")
}

func TestGolden(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{"sample.svg": sample().SVG, "sample.html": sample().HTML} {
		got, file := withoutStyle(render(t, write)), "testdata/"+name
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s differs (-update writes it):\n%s", name, got)
		}
	}
}

// sums parses a document and sums the counts in the titles of its cells.
func sums(t *testing.T, text string) (cells, values int) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(text))
	dec.Strict = strings.HasPrefix(text, "<?xml")
	dec.AutoClose, dec.Entity = xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return cells, values
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != "rect" {
			continue
		}
		var rect struct {
			Title string `xml:"title"`
		}
		if err := dec.DecodeElement(&rect, &e); err != nil {
			t.Fatal(err)
		}
		if rect.Title != "" {
			_, count, _ := strings.Cut(rect.Title, ": ")
			count, _, _ = strings.Cut(count, " of ")
			n, err := strconv.Atoi(count)
			if err != nil {
				t.Errorf("title %q has no count", rect.Title)
			}
			cells, values = cells+1, values+n
		}
	}
}

// TestCounts checks that an image is well-formed and that its cells contain all values.
func TestCounts(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{"svg": sample().SVG} {
		if cells, values := sums(t, render(t, write)); cells != 5 || values != 6 {
			t.Errorf("%s: %d cells with %d values, want 5 with 6", name, cells, values)
		}
	}
}

func TestEscapes(t *testing.T) {
	for _, write := range []func(io.Writer) error{sample().SVG, sample().HTML} {
		text := withoutStyle(render(t, write))
		for _, bad := range []string{"<b>", "\x1b", "\x00", "\xff", "src=", "href="} {
			if strings.Contains(text, bad) {
				t.Errorf("the document contains %q", bad)
			}
		}
		if !strings.Contains(text, "disk = &lt;b&gt;&amp;&#34;���") {
			t.Errorf("the key is missing: %s", text)
		}
	}
}

// TestHalve checks that a long run keeps all values in a bounded number of columns and cells.
func TestHalve(t *testing.T) {
	r := New("x", histogram.Values, "")
	const n = 3*maxColumns + 1
	for i := range n {
		at := start().Add(time.Duration(i) * time.Second)
		r.Begin(at, at.Add(time.Second))
		r.Add("", hist(histogram.Values, 5, uint64(i)))
		r.End()
	}
	if len(r.columns) > maxColumns || r.per != 4 || len(r.columns) != (n+3)/4 {
		t.Errorf("%d columns of %d intervals", len(r.columns), r.per)
	}
	if _, values := sums(t, render(t, r.SVG)); values != 2*n {
		t.Errorf("%d values, want %d", values, 2*n)
	}
	for i, c := range r.columns {
		if at := start().Add(time.Duration(4*i) * time.Second); !c.begin.Equal(at) || c.end.Sub(c.begin) > 4*time.Second {
			t.Fatalf("column %d is from %v to %v", i, c.begin, c.end)
		}
	}
	if !strings.Contains(r.notesOf(), "4 intervals of about 1s per column") {
		t.Errorf("notes are %q", r.notesOf())
	}
}

func (r *Recorder) notesOf() string { return newDocument(r).notes() }

// TestCells checks that the number of cells is bounded.
func TestCells(t *testing.T) {
	r := New("x", histogram.Values, "")
	var all []uint64
	for row := range 200 {
		lo, _ := bounds(histogram.Values, row)
		all = append(all, lo)
	}
	for i := range maxColumns {
		at := start().Add(time.Duration(i) * time.Second)
		r.Begin(at, at.Add(time.Second))
		for key := range 10 {
			r.Add(fmt.Sprint(key), hist(histogram.Values, all...))
		}
		r.End()
		if r.cells > maxCells {
			t.Fatalf("%d cells after interval %d", r.cells, i)
		}
	}
	var count uint64
	for _, s := range r.all() {
		count += s.count
	}
	if count != maxColumns*2000 {
		t.Errorf("%d values, want %d", count, maxColumns*2000)
	}
}

// TestKeys checks that the values of further keys are shown together.
func TestKeys(t *testing.T) {
	r := New("x", histogram.Values, "")
	r.Begin(start(), start().Add(time.Second))
	for i := range maxKeys + 5 {
		r.Add(fmt.Sprint("key ", i), hist(histogram.Values, 7))
	}
	r.End()
	text := render(t, r.SVG)
	if _, values := sums(t, text); values != maxKeys+5 {
		t.Errorf("%d values", values)
	}
	if !strings.Contains(text, "keys after the first 64: 5 values") {
		t.Errorf("the further keys are missing")
	}
}

// TestRows checks that rows cover all slots without gaps.
func TestRows(t *testing.T) {
	for _, u := range []histogram.Unit{histogram.Values, histogram.Nanoseconds, histogram.Microseconds, histogram.Milliseconds, histogram.Kilobytes} {
		for slot := range u.SlotOf(1<<62) + 1 {
			lo, hi := u.Bounds(slot)
			from, to := bounds(u, rowOf(slot))
			if lo < hi && (lo < from || hi > to) {
				t.Fatalf("%v: slot %d from %d to %d is in the row from %d to %d", u, slot, lo, hi, from, to)
			}
		}
	}
}

func TestLevels(t *testing.T) {
	for most, want := range map[uint64]string{0: "[]", 1: "[1]", 3: "[1 2 3]", 255: "[1 2 4 8 16 32 64 128]"} {
		if got := fmt.Sprint(levels(most)); got != want {
			t.Errorf("levels of %d: %s, want %s", most, got, want)
		}
	}
}

func TestShown(t *testing.T) {
	for _, test := range []struct {
		unit histogram.Unit
		v    uint64
		want string
	}{
		{histogram.Microseconds, 0, "0ns"}, {histogram.Microseconds, 1500, "1.5us"}, {histogram.Milliseconds, 2e9, "2s"},
		{histogram.Values, 1234567, "1234567"}, {histogram.Kilobytes, 1536, "1.5KiB"}, {histogram.Kilobytes, 512, "512B"},
	} {
		if got := shown(test.unit, test.v); got != test.want {
			t.Errorf("%d %v: got %s, want %s", test.v, test.unit, got, test.want)
		}
	}
}

// TestEmpty checks that a run without values says so, and that losses are shown.
func TestEmpty(t *testing.T) {
	r := New("x", histogram.Values, "")
	r.SetLost("3 values were lost.")
	for _, write := range []func(io.Writer) error{r.SVG, r.HTML} {
		if text := render(t, write); !strings.Contains(text, "No values were counted. 3 values were lost.") {
			t.Errorf("got %s", text)
		}
	}
}
