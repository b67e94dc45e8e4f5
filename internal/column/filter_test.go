package column

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/value"
)

func sample() *row {
	r := &row{
		Error: -2, Path: value.Bytes("/etc/passwd"), Bare: "n", Args: value.List("ls\x00-l\x00"),
		At: value.Time(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixNano()), Failed: true, Ratio: 0.5,
	}
	r.PID, r.Ret = 7, -2
	copy(r.Comm[:], "bash")
	return r
}

func TestFilter(t *testing.T) {
	cols := of(t, sample())
	for _, tt := range []struct {
		source, needs string
		want          bool
	}{
		{`true`, "", true},
		{`ret < 0`, "ret", true},
		{`ret < 0 and path startsWith "/etc"`, "ret path", true},
		{`ret >= 0 || pid != 7`, "pid ret", false},
		{`error == "ENOENT"`, "error", true},
		{`comm matches "^ba"`, "comm", true},
		{`comm in ["sh", "bash"]`, "comm", true},
		{`pid in 5..8`, "pid", true},
		{`not failed`, "failed", false},
		{`ratio * 2 == 1`, "ratio", true},
		{`len(args) == 2 and args[1] == "-l"`, "args", true},
		{`any(args, # startsWith "-")`, "args", true},
		{`count(args, # startsWith "-") == 1 and max(ret, 1) == 1`, "ret args", true},
		{`let count = ret; count < 0`, "ret", true},
		{`time > date("2026-01-01") and time < date("2027-01-01")`, "time", true},
		{`let p = path; p endsWith "wd"`, "path", true},
		{`$env["ret"] == -2`, "pid comm ret error path name args time failed ratio", true},
	} {
		f, err := NewFilter(tt.source, cols)
		if err != nil {
			t.Errorf("%s: %v", tt.source, err)
			continue
		}
		if got := strings.Join(Keys(f.Needs()), " "); got != tt.needs {
			t.Errorf("%s needs %q, want %q", tt.source, got, tt.needs)
		}
		for range 2 {
			if got, err := f.Match(); err != nil || got != tt.want {
				t.Errorf("%s is %v, %v", tt.source, got, err)
			}
		}
	}
}

// Comparisons with a number or time that has no value are false, whatever the field contains. Other
// columns are then empty. Only nil tells apart what has no value.
func TestFilterOfAbsentColumns(t *testing.T) {
	r := &struct {
		Mode value.FileMode `json:"mode"`
		Path value.Bytes    `json:"path"`
		Port value.Integer  `json:"port"`
		PID  uint32         `json:"pid"`
	}{Mode: value.FileMode{Bits: 0o644}, Port: value.Integer{N: 7}, PID: 7}
	cols := of(t, r)
	for _, tt := range []struct {
		source          string
		absent, present bool
	}{
		{`mode == ""`, true, false},
		{`mode == nil`, true, false},
		{`nil != mode`, false, true},
		{`path == ""`, true, false},
		{`port == 7`, false, true},
		{`port != 8`, false, true},
		{`port < 100`, false, true},
		{`port >= 0`, false, true},
		{`port + pid > 8`, false, true},
		{`port in 0..8`, false, true},
		{`port == nil`, true, false},
		{`port != nil and port == pid`, false, true},
		{`not (port == nil) and pid == 7`, false, true},
		{`let n = port * 2; n < 20`, false, true},
		{`let n = port; let m = n + 1; m < 20 or pid == 0`, false, true},
		{`pid != nil and pid < 8`, true, true},
		{`any([1, 7], # == port)`, false, true},
	} {
		f, err := NewFilter(tt.source, cols)
		if err != nil {
			t.Errorf("%s: %v", tt.source, err)
			continue
		}
		for _, has := range []bool{false, true, false} {
			r.Mode.Given, r.Port.Given, r.Path = has, has, nil
			if has {
				r.Path = value.Bytes("/x")
			}
			want := tt.absent
			if has {
				want = tt.present
			}
			if got, err := f.Match(); err != nil || got != want {
				t.Errorf("%s: %v, %v, want %v with values %v", tt.source, got, err, want, has)
			}
		}
	}
}

// A condition on a column without values is refused, because it would select no row. Only nil matches.
func TestFilterOfColumnsThatAreOff(t *testing.T) {
	cols := of(t, sample())
	Find(cols, "ret").Off = true
	for _, source := range []string{`ret < 0`, `pid == 7 or ret == 0`, `let n = ret; n < 0`} {
		if _, err := NewFilter(source, cols); !errors.Is(err, ErrOff) || !strings.Contains(err.Error(), `"ret"`) {
			t.Errorf("%s: %v, want %v", source, err, ErrOff)
		}
	}
	for _, source := range []string{`ret == nil`, `ret == nil and pid == 7`, `$env["pid"] == 7`} {
		f, err := NewFilter(source, cols)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := f.Match(); err != nil || !got {
			t.Errorf("%s is %v, %v", source, got, err)
		}
	}
}

func TestFilterReadsCurrentRow(t *testing.T) {
	r := sample()
	f, err := NewFilter(`error == "ENOENT" and path contains "passwd" or args == [] and error == ""`, of(t, r))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		change func()
		want   bool
	}{
		{func() {}, true},
		{func() { r.Path = value.Bytes("/tmp") }, false},
		{func() { r.Error, r.Path, r.Args = 0, nil, nil }, true}, // no values of the previous row remain
		{func() { r.Error = -1 }, false},
	} {
		step.change()
		if got, err := f.Match(); err != nil || got != step.want {
			t.Errorf("row %+v: %v, %v, want %v", r, got, err, step.want)
		}
	}
}

// Keys of histogram columns are also names of functions in the expression language.
func TestFilterKeysNamedLikeFunctions(t *testing.T) {
	cols := of(t, &struct {
		Count uint64  `json:"count"`
		Sum   float64 `json:"sum"`
		Min   float64 `json:"min"`
		Max   float64 `json:"max"`
		Mean  float64 `json:"mean"`
		P99   float64 `json:"p99"`
		Len   uint32  `json:"len"`
		Type  string  `json:"type"`
		Now   uint32  `json:"now"`
	}{Count: 3, Max: 2, P99: 1.5, Type: "x"})
	f, err := NewFilter(`count > 2 and max >= p99 and min + sum + mean == 0 and len == 0 and type == "x" and now == 0`, cols)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := f.Match(); err != nil || !ok || len(f.Needs()) != len(cols) {
		t.Errorf("%v, %v, needs %v", ok, err, Keys(f.Needs()))
	}
}

func TestFilterErrorPosition(t *testing.T) {
	cols := of(t, sample())
	for _, tt := range []struct{ source, message, position string }{
		{`ret < 0 and pth == "x"`, "unknown name pth", "(1:13)"},
		{`ret == "x"`, "mismatched types int and string", "(1:5)"},
		{`ret <`, "unexpected token EOF", "(1:5)"},
		{`ret < 0 path`, "unexpected token", "(1:9)"},
		{`path`, "expected bool, but got string", ""},
		{`PID == 1`, "unknown name PID", "(1:1)"},
		{`ret < 0 and count > 1`, "unknown name count", "(1:13)"},
		{`len > 1`, "unknown name len", "(1:1)"},
		{`comm matches "("`, "missing closing )", "(1:6)"},
	} {
		_, err := NewFilter(tt.source, cols)
		if err == nil || !strings.Contains(err.Error(), tt.message) || !strings.Contains(err.Error(), tt.position) {
			t.Errorf("%s: %v, want %q at %s", tt.source, err, tt.message, tt.position)
		}
	}
}

func TestFilterEvaluationError(t *testing.T) {
	f, err := NewFilter(`args[5] == "x"`, of(t, sample()))
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := f.Match(); err == nil || ok || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("%v, %v", ok, err)
	}
}

func BenchmarkFilter(b *testing.B) {
	f, err := NewFilter(`ret < 0 and path startsWith "/etc"`, of(b, sample()))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Match(); err != nil {
			b.Fatal(err)
		}
	}
}
