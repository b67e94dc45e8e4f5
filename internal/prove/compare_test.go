package prove

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// parse returns the value of a JSON text with numbers as in the output of a tool.
func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func columnOf(t *testing.T, columns []Column, name string) Column {
	t.Helper()
	for _, c := range columns {
		if c.Column == name {
			return c
		}
	}
	t.Fatalf("no column %s in %+v", name, columns)
	return Column{}
}

func TestCompare(t *testing.T) {
	const want = `[{"pid":1,"path":"a","ns":{"max":9}},{"pid":1,"path":"b","ns":{"min":2,"max":9}}]`
	tests := []struct {
		name, want, got string
		lost            losses
		column          string
		result          Result
		text            string // in what the tool shows, or in the reason
	}{
		{"equal", want, `[{"pid":1,"path":"a","ns":3},{"pid":1,"path":"b","ns":2}]`, nil, "path", Proved, "b"},
		{"other order", want, `[{"pid":1,"path":"b","ns":2},{"pid":1,"path":"a","ns":3}]`, nil, "path", Proved, "b"},
		{"wrong value", want, `[{"pid":1,"path":"a","ns":3},{"pid":2,"path":"b","ns":2}]`, nil, "pid", Contradicted, "2"},
		{"others are proved", want, `[{"pid":1,"path":"a","ns":3},{"pid":2,"path":"b","ns":2}]`, nil, "path", Proved, "b"},
		{"too long", want, `[{"pid":1,"path":"a","ns":10},{"pid":1,"path":"b","ns":2}]`, nil, "ns", Contradicted, "10"},
		{"too short", want, `[{"pid":1,"path":"a","ns":9},{"pid":1,"path":"b","ns":1}]`, nil, "ns", Contradicted, "1"},
		{"absent", want, `[{"pid":1,"ns":3},{"pid":1,"path":"b","ns":2}]`, nil, "path", Contradicted, "null"},
		{"text for a number", want, `[{"pid":"1","path":"a","ns":3},{"pid":1,"path":"b","ns":2}]`, nil, "pid", Contradicted, `"1"`},
		{"missing row", want, `[{"pid":1,"path":"b","ns":2}]`, nil, "rows", Contradicted, `"a"`},
		{"missing and lost", want, `[{"pid":1,"path":"b","ns":2}]`, losses{"buffer_full": 1}, "rows", NotProvable, "buffer_full 1"},
		{"missing and not all lost", want, `[]`, losses{"buffer_full": 1}, "rows", Contradicted, "0 and 1 lost"},
		{"lost by others", want, `[{"pid":1,"path":"a","ns":3},{"pid":1,"path":"b","ns":2}]`, losses{"map_full": 7}, "rows", Proved, "2"},
		{"twice", want, `[{"pid":1,"path":"a","ns":3},{"pid":1,"path":"b","ns":2},{"pid":1,"path":"b","ns":2}]`, nil, "rows", Contradicted, `too many: {`},
		{"unknown column", want, `[{"pid":1,"path":"a","ns":3,"x":1},{"pid":1,"path":"b","ns":2}]`, nil, "x", NotProvable, "does not know"},
		{"one of several", `[{"id":{"any":[1,2]}}]`, `[{"id":2}]`, nil, "id", Proved, "2"},
		{"none of several", `[{"id":{"any":[1,2]}}]`, `[{"id":3}]`, nil, "id", Contradicted, "3"},
		{"member", `[{"a":{"object":{"fd":3}}}]`, `[{"a":{"fd":3,"x":1}}]`, nil, "a", Proved, "3"},
		{"other member", `[{"a":{"object":{"fd":3}}}]`, `[{"a":{"fd":4}}]`, nil, "a", Contradicted, "4"},
		{"no member", `[{"a":{"object":{"fd":3}}}]`, `[{"a":{"x":3}}]`, nil, "a", Contradicted, "x"},
		{"no object", `[{"a":{"object":{"fd":3}}}]`, `[{"a":3}]`, nil, "a", Contradicted, "3"},
		{"list", `[{"a":["x","y"]}]`, `[{"a":["x","y"]}]`, nil, "a", Proved, "x"},
		{"shorter list", `[{"a":["x","y"]}]`, `[{"a":["x"]}]`, nil, "a", Contradicted, "x"},
		{"large number", `[{"a":9007199254740993}]`, `[{"a":9007199254740992}]`, nil, "a", Contradicted, "992"},
		{"no rows", want, `[]`, losses{"map_full": 2}, "path", NotProvable, "no row"},
		{"lost from a sum", `[{"k":"x","count":5}]`, `[{"k":"x","count":3}]`, losses{"map_full": 2}, "count", NotProvable, "map_full 2"},
		{"sum too great", `[{"k":"x","count":5}]`, `[{"k":"x","count":6}]`, losses{"map_full": 2}, "count", Contradicted, "6"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			columns := compare(&log{Rows: parse[[]row](t, tt.want)}, parse[[]row](t, tt.got), tt.lost)
			c := columnOf(t, columns, tt.column)
			if c.Result != tt.result || !strings.Contains(c.Got+c.Reason, tt.text) {
				t.Errorf("%+v, want %s with %q", c, tt.result, tt.text)
			}
		})
	}
}

// TestScale has durations of which only the maximum is known.
func TestScale(t *testing.T) {
	for _, tt := range []struct {
		ns     int
		result Result
	}{{900, Proved}, {20, Proved}, {5, Contradicted}, {0, Contradicted}} {
		want, got := &log{}, []row{}
		for i := range enoughShares {
			waited := 1_000_000 // for a CPU
			if i == 0 {
				waited = 1000
			}
			want.Rows = append(want.Rows, parse[row](t, fmt.Sprintf(`{"ns":{"max":%d}}`, waited)))
			got = append(got, parse[row](t, fmt.Sprintf(`{"ns":%d}`, tt.ns)))
		}
		if c := columnOf(t, compare(want, got, nil), "ns"); c.Result != tt.result {
			t.Errorf("%d ns: %+v, want %s", tt.ns, c, tt.result)
		}
	}
}

func TestTotals(t *testing.T) {
	rows := parse[[]row](t, `[{"bytes":3},{"bytes":4}]`)
	for want, result := range map[string]Result{`7`: Proved, `8`: Contradicted, `{"min":7,"max":9}`: Proved, `{"min":8,"max":9}`: Contradicted} {
		l := &log{Rows: rows, Totals: []total{{"bytes", parse[any](t, want), "the disk"}}}
		if c := columnOf(t, compare(l, rows, nil), "sum of bytes"); c.Result != result || c.Source != "the disk" {
			t.Errorf("want %s: %+v", want, c)
		}
	}
}

func TestFold(t *testing.T) {
	rows := fold(parse[[]row](t, `[{"k":"x","count":1,"avg_ns":5,"other":1},{"k":"y","count":2},{"k":"x","count":3,"other":2}]`), []string{"k"})
	if got := text(rows); got != `[{"count":4,"k":"x","number of rows":2},{"count":2,"k":"y","number of rows":1}]` {
		t.Error(got)
	}
}

func TestFoldHistogram(t *testing.T) {
	const values = `"count":2,"sum":5,"min":1,"max":4`
	for buckets, want := range map[string]string{
		`[{"lo":1,"hi":2,"count":1},{"lo":4,"hi":8,"count":1}]`: consistent,
		`[{"lo":2,"hi":4,"count":1},{"lo":4,"hi":8,"count":1}]`: "min 1 is not",
		`[{"lo":1,"hi":2,"count":1},{"lo":2,"hi":3,"count":1}]`: "max 4 is not",
		`[{"lo":1,"hi":2,"count":2}]`:                           "sum 5 is not",
	} {
		r := fold(parse[[]row](t, `[{"key":{"op":"read"},`+values+`,"buckets":`+buckets+`}]`), []string{"op"})[0]
		got, _ := r["buckets"].(string)
		if !strings.Contains(got, want) && !strings.Contains(got, "is not in") || want == consistent && got != consistent {
			t.Errorf("%s: %q, want %q", buckets, got, want)
		}
		if r["op"] != "read" || r["bucket_count"] != json.Number("2") || r["count"] != json.Number("2") {
			t.Errorf("%s: %v", buckets, r)
		}
	}
}

func TestProofsHaveJobs(t *testing.T) {
	all := jobs()
	seen := map[string]bool{}
	for _, p := range proofs() {
		if all[p.job].run == nil {
			t.Errorf("%s: no workload %q", p.tool, p.job)
		}
		if seen[p.tool] || p.does == "" || withoutProof()[p.tool] != "" {
			t.Errorf("%s has two entries, or no description", p.tool)
		}
		seen[p.tool] = true
	}
}

// TestEveryToolHasReason reads the names of the tools from the tree: this package does not know them.
func TestEveryToolHasReason(t *testing.T) {
	if _, err := os.Stat("../../go.mod"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("the tree is not here, as in virtual machines")
	}
	text, err := os.ReadFile("../../tools/tools.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := withoutProof()
	for _, found := range regexp.MustCompile(`\t(\w+)\.Tool,`).FindAllStringSubmatch(string(text), -1) {
		name := found[1]
		if (proofOf(name) == nil) == (reasons[name] == "") {
			t.Errorf("%s needs a proof or a reason why it has none", name)
		}
		delete(reasons, name)
	}
	for name := range reasons {
		t.Errorf("reason for an unknown tool: %s", name)
	}
}

func TestTAP(t *testing.T) {
	bad := Tool{Tool: "x", Result: Contradicted, Columns: []Column{{Column: "pid", Result: Contradicted, Want: "1", Got: "2"}}}
	if got := bad.tap(3); got != "not ok 3 - x\n# pid: contradicted: the tool shows 2, want 1\n" {
		t.Errorf("%q", got)
	}
	skip := Tool{Tool: "x", Result: NotProvable, Reason: "none"}
	if got := skip.tap(1); got != "ok 1 - x # SKIP not provable here: none\n" {
		t.Errorf("%q", got)
	}
}

// TestInterruptedTAP checks that a reader learns that results are missing.
func TestInterruptedTAP(t *testing.T) {
	var out strings.Builder
	r := Run{Format: "tap", Out: &out}
	if err := r.end(Report{Interrupted: true}); err != nil || out.String() != "Bail out! interrupted\n" {
		t.Errorf("%v: %q", err, &out)
	}
}

// TestHidden checks that a process counts that was on a CPU at both times.
// TestIncomplete checks which reports are errors.
func TestIncomplete(t *testing.T) {
	proved, contradicted := Tool{Result: Proved}, Tool{Result: Contradicted}
	without, denied := Tool{Result: NotProvable}, Tool{Result: NotProvable, denied: true}
	for i, c := range []struct {
		tools []Tool
		want  error
	}{
		{[]Tool{proved, without}, nil},
		{[]Tool{without, without}, ErrNothingProved},
		{[]Tool{denied, proved}, ErrNotPermitted},
		{[]Tool{denied, without}, ErrNotPermitted},
		{[]Tool{contradicted, denied}, nil},
	} {
		report := Report{Tools: c.tools, Contradicted: c.tools[0].Result == Contradicted}
		if err := (&Run{Tools: make([]string, len(c.tools))}).incomplete(report); !errors.Is(err, c.want) {
			t.Errorf("%d: %v, want %v", i, err, c.want)
		}
	}
}

func TestHidden(t *testing.T) {
	for _, test := range []struct {
		before, after usedCPU
		want          int
	}{
		{usedCPU{5, 1}, usedCPU{5, 1}, 0},
		{usedCPU{5, 1}, usedCPU{9, 1}, 1},
		{usedCPU{5, 1}, usedCPU{9, 4}, 3},
	} {
		if got := test.after.since(test.before); got != test.want {
			t.Errorf("%+v since %+v: %d, want %d", test.after, test.before, got, test.want)
		}
	}
}

// TestFields reads a file of lines with names.
func TestFields(t *testing.T) {
	got := fieldsOf("Name:\tx\nrchar: 12\nvoluntary_ctxt_switches:\t7\n")
	if len(got) != 2 || got["rchar"] != 12 || got["voluntary_ctxt_switches"] != 7 {
		t.Errorf("%v", got)
	}
}
