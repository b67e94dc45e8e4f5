package tool

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/value"
)

func compile(t *testing.T, f *fake, args ...string) *jsonschema.Schema {
	t.Helper()
	facts, err := f.tool().Facts(args...)
	if err != nil {
		t.Fatal(err)
	}
	text, err := facts.Schema()
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	if err := c.AddResource("fake.json", parse(t, string(text))); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile("fake.json")
}

func parse(t *testing.T, text string) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// TestEventSchema validates correct lines, and incorrect ones that differ from them in one place.
func TestEventSchema(t *testing.T) {
	const head = `{"type":"event","time":"2026-01-02T03:04:05.000000006Z",`
	all := compile(t, newFake())
	some := compile(t, newFake(), "--columns", "args,note")
	for _, tc := range []struct {
		schema *jsonschema.Schema
		good   bool
		line   string
	}{
		{all, true, head + `"comm":"a","args":[],"took_ns":1}`},
		{all, true, head + `"comm":"\ufffd","comm_base64":"/w==","args":["\ufffd"],"args_base64":["/w=="],"took_ns":1,"note":"x"}`},
		{all, false, head + `"comm":"a","args":[]}`},
		{all, false, head + `"comm":"a","args":[],"took_ns":-1}`},
		{all, false, head + `"comm":"a","args":["x"],"args_base64":"eA==","took_ns":1}`},
		{all, false, head + `"comm":"a","comm_base64":"no base64","args":[],"took_ns":1}`},
		{all, false, head + `"comm":"a","args":[],"took_ns":1,"more":1}`},
		{all, false, `{"type":"event","time":"now","comm":"a","args":[],"took_ns":1}`},
		{all, false, `{"type":"histogram","time":"2026-01-02T03:04:05Z","comm":"a","args":[],"took_ns":1}`},
		{some, true, `{"type":"event","args":[]}`},
		{some, false, `{"type":"event","note":"x"}`},
	} {
		if err := tc.schema.Validate(parse(t, tc.line)); (err == nil) != tc.good {
			t.Errorf("%s: good %v, want %v: %#v", tc.line, err == nil, tc.good, err)
		}
	}
}

// TestOtherLinesMatchSchema validates the lines other than rows.
func TestOtherLinesMatchSchema(t *testing.T) {
	schema := compile(t, newFake())
	var out bytes.Buffer
	w := output.New(output.Options{Format: output.JSON, Out: &out})
	now := time.Now()
	counts := map[string]uint64{"buffer_full": 1}
	stats := &Stats{Programs: []probe.ProgramStats{{Program: "open__btf", Runs: 3, NsARun: 1.5}}}
	for _, err := range []error{
		w.Ready(output.Ready{Time: now, Tool: "fake", Hooks: []string{"open: tp_btf/sys_exit"}}),
		w.Lost(output.Lost{Time: now, Lost: 1, Reasons: counts}),
		w.Summary(output.Summary{Time: now, Events: 3}),
		w.Summary(output.Summary{Time: now, Events: 3, Lost: 1, Reasons: counts, Counters: counts, Stats: stats}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 4: %q", len(lines), lines)
	}
	for _, line := range lines {
		if err := schema.Validate(parse(t, line)); err != nil {
			t.Errorf("%s: %#v", line, err)
		}
	}
}

func TestHistogramSchema(t *testing.T) {
	f := newFake()
	f.shows, f.row, f.text = output.KindHistogram, &histogram.Stats{}, []string{"comm"}
	label := struct {
		Comm value.Comm `json:"comm" help:"whose"`
		Disk string     `json:"disk" help:"which"`
	}{Comm: value.Comm{'a', 0xff}}
	var err error
	if f.labels, err = column.Of(&label); err != nil {
		t.Fatal(err)
	}
	f.keys = f.labels[:1]
	schema := compile(t, f)
	for _, count := range []uint64{0, 3} {
		h := histogram.New(histogram.Microseconds)
		h.Add(17, histogram.Slot{Count: count, Sum: 51, Min: 17, Max: 17})
		line := string(output.AppendHistogram(nil, 1, f.keys, h))
		if err := schema.Validate(parse(t, line)); err != nil {
			t.Errorf("%s: %#v", line, err)
		}
		for _, key := range []string{`"unit":"usecs",`, `"comm":"a\ufffd",`, `"p99":`, `"buckets":`} {
			less := strings.Replace(line, key, strings.Replace(key, `"`, `"no`, 1), 1)
			if less == line || schema.Validate(parse(t, less)) == nil {
				t.Errorf("no error for a line with a renamed key: %s", less)
			}
		}
	}
}

func TestSchemaKeepsOrder(t *testing.T) {
	facts, err := newFake().tool().Facts()
	if err != nil {
		t.Fatal(err)
	}
	text, err := facts.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var positions []int
	for _, want := range []string{`"$schema"`, "Show <nothing>", `"const": "ready"`, `"comm"`, `"comm_base64"`, `"note"`, `"const": "lost"`, `"const": "summary"`} {
		positions = append(positions, strings.Index(string(text), want))
	}
	if !slices.IsSorted(positions) || positions[0] < 0 {
		t.Errorf("positions are %v", positions)
	}
}
