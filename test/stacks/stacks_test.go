package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// least are the minimum accuracies of the programs that CI runs, in percent: found, and named
// outside of the C library. These programs are the most demanding ones for symbolization, and one is
// in a signal handler; `make stacks` runs all programs.
var least = map[string][2]float64{
	"chain_fp":        {90, 95},
	"chain_minidebug": {90, 95},
	"jit_dump":        {90, 95},
	"go_stripped":     {90, 95},
	"signal":          {80, 95}, // libc can be without a name for __restore_rt
}

// TestPrograms measures some of the programs, or those in CASES, with corescope.
func TestPrograms(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	wanted := strings.Fields(os.Getenv("CASES"))
	binary := filepath.Join(t.TempDir(), "corescope")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/corescope")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := settings{subjects: []subject{corescope(binary)}}
	for _, p := range programs() {
		want, quick := least[p.name]
		if len(wanted) > 0 && !slices.Contains(wanted, p.name) || len(wanted) == 0 && !quick {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			r, err := s.measure(t.Context(), &p)
			if errors.Is(err, errUnavailable) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			got := r.scores[0]
			t.Log(r.text())
			if got.Samples == 0 || got.Found < want[0] || got.Own < want[1] {
				t.Errorf("got %+v, want %v %% found and named", got, want)
			}
		})
	}
}

func stackOf(names ...string) (frames []frame) {
	for _, n := range names {
		frames = append(frames, frame{name: n})
	}
	return frames
}

func TestScore(t *testing.T) {
	p := &program{chain: []string{"leaf", "three|3", rest, "main"}, others: []string{"_start"}, heads: 2}
	at := func(addr uint64) string { return map[uint64]string{7: "three"}[addr] }
	tests := []struct {
		name   string
		frames []frame
		want   score
	}{
		{"complete", stackOf("leaf", "3", "main", "_start"), score{1, 100, 100, 100, 100, false}},
		{"additional frames", stackOf("leaf", "three", "x", "y", "main"), score{1, 100, 100, 60, 60, false}},
		{"second head", stackOf("three", "main"), score{1, 100, 100, 100, 100, false}},
		{"gap", stackOf("leaf", "x", "three", "main"), score{1, 0, 100, 75, 75, false}},
		{"by address", []frame{{name: "leaf"}, {address: 7}, {name: "main"}}, score{1, 100, 100, 200. / 3, 200. / 3, false}},
		{"wrong address", []frame{{name: "leaf"}, {address: 8}, {name: "main"}}, score{1, 0, 200. / 3, 200. / 3, 200. / 3, false}},
		{"truncated", stackOf("leaf"), score{1, 0, 100. / 3, 100, 100, false}},
		{
			"libc without its symbols", append(stackOf("leaf", "three", "main"), frame{module: "/usr/lib/libc.so.6"}),
			score{1, 100, 100, 75, 100, false},
		},
		{"mangled", stackOf("_Z4leafv"), score{1, 0, 0, 0, 0, false}},
		{"empty", nil, score{1, 0, 0, 0, 0, false}},
	}
	for _, test := range tests {
		got := newJudge(p, at).score([]sample{{test.frames, 1}})
		if fmt.Sprintf("%.4v", got) != fmt.Sprintf("%.4v", test.want) {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestParse(t *testing.T) {
	const rows = `{"type":"ready"}
{"type":"row","count":3,"user_stack":[{"symbol":"leaf"},{"module":"/a","address":"0x10"}]}
`
	const maps = `noise
{"type": "map", "data": {"@": {"\na::b(int)+40\n0x10\n<unwindfailure>\n": 3}}}
`
	want := []sample{{[]frame{{name: "leaf"}, {address: 16, module: "/a"}}, 3}}
	if got, err := parseRows([]byte(rows)); err != nil || !equal(got, want) {
		t.Errorf("parseRows: %v, %v", got, err)
	}
	want = []sample{{[]frame{{name: "a::b(int)"}, {address: 16}, {name: "<unwindfailure>"}}, 3}}
	if got, err := parseBpftrace([]byte(maps)); err != nil || !equal(got, want) {
		t.Errorf("parseBpftrace: %v, %v", got, err)
	}
	want = []sample{{[]frame{{name: "leaf"}, {}, {name: "a b"}}, 3}}
	if got, err := parseFolded([]byte("Sampling\ncomm;a b;[unknown];leaf 3\n")); err != nil || !equal(got, want) {
		t.Errorf("parseFolded: %v, %v", got, err)
	}
}

func equal(a, b []sample) bool {
	return slices.EqualFunc(a, b, func(a, b sample) bool { return a.count == b.count && slices.Equal(a.frames, b.frames) })
}
