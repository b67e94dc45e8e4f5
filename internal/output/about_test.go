package output

import (
	"bytes"
	"testing"
	"time"
)

// written returns what a Writer writes to its two streams.
func written(t *testing.T, format Format, use func(*Writer) error) (out, err string) {
	t.Helper()
	var o, e bytes.Buffer
	w := New(Options{Format: format, Name: "tool", Out: &o, Err: &e})
	if err := use(w); err != nil {
		t.Fatal(err)
	}
	return o.String(), e.String()
}

func TestAbout(t *testing.T) {
	moment := time.Date(2026, 5, 1, 10, 20, 30, 500, time.Local)
	stamp := moment.Format(`2006-01-02T15:04:05.000000000Z07:00`)
	for _, tt := range []struct {
		name       string
		use        func(*Writer) error
		json, text string
	}{
		{
			"ready", func(w *Writer) error {
				return w.Ready(Ready{Time: moment, Tool: "tool", Hooks: []string{"open: tp_btf/sys_exit", "x: y"}})
			},
			`{"type":"ready","time":"` + stamp + `","tool":"tool","hooks":["open: tp_btf/sys_exit","x: y"]}`,
			"tool: ready: open: tp_btf/sys_exit, x: y\n",
		},
		{
			"lost", func(w *Writer) error {
				return w.Lost(Lost{Time: moment, Lost: 5, Reasons: map[string]uint64{"map_full": 2, "buffer_full": 3, "none": 0}})
			},
			`{"type":"lost","time":"` + stamp + `","lost":5,"reasons":{"buffer_full":3,"map_full":2,"none":0}}`,
			"tool: lost 5: buffer full 3, map full 2\n",
		},
		{
			"summary", func(w *Writer) error {
				return w.Summary(Summary{
					Time: moment, Events: 9, Lost: 5,
					Reasons: map[string]uint64{"buffer_full": 5}, Counters: map[string]uint64{"retries": 1, "none": 0},
					Stats: struct {
						Seconds float64 `json:"seconds"`
					}{1.5},
				})
			},
			`{"type":"summary","time":"` + stamp + `","events":9,"lost":5,"reasons":{"buffer_full":5},"counters":{"none":0,"retries":1},"stats":{"seconds":1.5}}`,
			"tool: lost 5 in total: buffer full 5\ntool: retries 1\n",
		},
		{
			"summary of nothing odd", func(w *Writer) error {
				return w.Summary(Summary{Time: moment, Reasons: map[string]uint64{"buffer_full": 0}, Counters: map[string]uint64{"retries": 0}})
			},
			`{"type":"summary","time":"` + stamp + `","events":0,"lost":0,"reasons":{"buffer_full":0},"counters":{"retries":0}}`,
			"",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if out, err := written(t, JSON, tt.use); out != tt.json+"\n" || err != "" {
				t.Errorf("JSON: got\n%swant\n%s\nand on the other stream %q", out, tt.json, err)
			}
			for _, format := range []Format{Text, CSV} {
				if out, err := written(t, format, tt.use); out != "" || err != tt.text {
					t.Errorf("%s: got\n%swant\n%sand on the other stream %q", format, err, tt.text, out)
				}
			}
		})
	}
}

// The header is written when the tool is ready, before the first row.
func TestReadyFlushesTheHeader(t *testing.T) {
	var r row
	var out bytes.Buffer
	w := New(Options{Format: CSV, Columns: columns(t, &r)[:2], Out: &out, Err: &bytes.Buffer{}})
	if err := w.Ready(Ready{}); err != nil || out.String() != "time,pid\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	if w.Format() != CSV {
		t.Errorf("format %s", w.Format())
	}
}

func TestAppend(t *testing.T) {
	out, _ := written(t, Text, func(w *Writer) error {
		w.Append(func(b []byte) []byte { return append(b, "as it is\n"...) })
		return w.Summary(Summary{})
	})
	if out != "as it is\n" {
		t.Errorf("%q", out)
	}
}
