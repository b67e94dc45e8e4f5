package prove

import (
	"strings"
	"testing"
)

func lawOf(t *testing.T, s *Stats, name string) Column {
	t.Helper()
	return columnOf(t, s.Laws, name)
}

func TestLaws(t *testing.T) {
	tests := []struct {
		name, rows string
		count      int
		lost       losses
		law        string
		result     Result
		text       string
	}{
		{"durations", `[{"latency_ns":0,"time_ns":5}]`, 1, nil, lawDurations, Proved, "none of 2"},
		{"below 0", `[{"latency_ns":1},{"latency_ns":-1}]`, 2, nil, lawDurations, Contradicted, "latency_ns -1"},
		{"difference of unsigned numbers", `[{"latency_ns":18446744073709551615}]`, 1, nil, lawDurations, Contradicted, "latency_ns"},
		{"histogram", `[{"unit":"usecs","min":1,"max":18446744073709552,"sum":3}]`, 1, nil, lawDurations, Contradicted, "max"},
		{"histogram of sizes", `[{"unit":"Kbytes","min":1,"max":-1,"interval_ns":3}]`, 1, nil, lawDurations, Proved, "none of 1"},
		{"as many rows as runs", `[]`, 6, losses{"buffer_full": 1}, lawRuns, Proved, "7"},
		{"more rows than runs", `[]`, 7, losses{"buffer_full": 1}, lawRuns, Contradicted, "8"},
		{"as many as runs, and a skipped one", `[]`, 7, losses{"program_busy": 1}, lawRuns, Proved, "7"},
		{"pairs", `[{"kind":"connect","port":1},{"kind":"accept","port":2},{"kind":"close","port":2},{"kind":"close","port":1}]`, 4, nil, lawPairs, Proved, "0 "},
		{"no end", `[{"kind":"connect","port":1},{"kind":"accept","port":2},{"kind":"close","port":2}]`, 3, nil, lawPairs, Contradicted, "1 "},
		{"wrong end", `[{"kind":"connect","port":1},{"kind":"close","port":2}]`, 2, nil, lawPairs, Contradicted, "2 "},
		{"lost end", `[{"kind":"connect","port":1}]`, 1, losses{"map_full": 1}, lawPairs, NotProvable, "1 "},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := proof{pairs: "kind connect,accept close port"}
			rows := parse[[]row](t, test.rows)
			o := &observation{rows: rows, count: test.count, reported: test.lost, lost: test.lost, programs: []Program{{"enter__btf", 3}, {"exit__btf", 4}}}
			c := lawOf(t, p.statsOf(o, rows), test.law)
			if c.Result != test.result || !strings.Contains(c.Got, test.text) {
				t.Errorf("%+v, want %s with %q", c, test.result, test.text)
			}
		})
	}
}

// TestSummaryLine reads the last line of a tool.
func TestSummaryLine(t *testing.T) {
	o := &observation{}
	if err := o.line([]byte(`{"type":"summary","events":5,"lost":3,"reasons":{"buffer_full":3},"stats":{"programs":[{"program":"exit__btf","runs":9}]}}`)); err != nil {
		t.Fatal(err)
	}
	if !o.ended || o.count != 5 || o.lost["buffer_full"] != 3 || len(o.programs) != 1 || o.programs[0] != (Program{"exit__btf", 9}) {
		t.Errorf("%+v", o)
	}
	o.lost["other"] = 1
	if len(o.reported) != 1 {
		t.Errorf("reported %v", o.reported)
	}
}

// TestCommandLine checks where --stats and facts appear.
func TestCommandLine(t *testing.T) {
	p := proof{tool: "x", args: "--pid {pid}"}
	if got := strings.Join(p.line(p.args, facts{"pid": "7"}, true), " "); got != "x --output json --stats --pid 7" {
		t.Error(got)
	}
}
