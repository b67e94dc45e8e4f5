package flags

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

type inner struct {
	PIDs []uint32 `flag:"pid,p" arg:"PID" help:"processes"`
}

type options struct {
	inner
	Failed   bool       `flag:"failed,x" bpf:"targ_failed" help:"failures only"`
	Name     string     `flag:"full-name,n" also:"fullname" arg:"TEXT" bpf:"targ_name" help:"the name"`
	Words    []string   `flag:"words" help:"words"`
	Span     Duration   `flag:"duration" arg:"TIME" help:"how long"`
	Spans    []Duration `flag:"spans"`
	Limit    uint64     `flag:"limit" help:"rows"`
	Port     uint16     `flag:"port"`
	Level    int32      `flag:"level"`
	Ratio    float64    `flag:"ratio"`
	Interval float64    `pos:"interval" help:"seconds"`
	Count    uint64     `pos:"count" help:"reports"`
	Knob     uint32     `bpf:"knob"`
	Plain    string
	hidden   int //lint:ignore U1000 fields that are not exported are no flags
}

func parse(t testing.TB, o *options, shorts map[string]string, args ...string) error {
	t.Helper()
	s := New("tool")
	if err := s.Add(o, shorts); err != nil {
		t.Fatal(err)
	}
	return s.Parse(args)
}

func TestParse(t *testing.T) {
	second := Duration(time.Second)
	for _, tt := range []struct {
		args string
		want options
	}{
		{"", options{}},
		{"--failed", options{Failed: true}},
		{"-x", options{Failed: true}},
		{"--failed=false", options{}},
		{"-p 1", options{inner: inner{[]uint32{1}}}},
		{"-p1,2", options{inner: inner{[]uint32{1, 2}}}},
		{"--pid 1 --pid=2,3 -p 4", options{inner: inner{[]uint32{1, 2, 3, 4}}}},
		{"--words a,b", options{Words: []string{"a", "b"}}},
		{"--full-name n", options{Name: "n"}},
		{"--full_name n", options{Name: "n"}},
		{"--fullname n", options{Name: "n"}},
		{"--full-name a --fullname a", options{Name: "a"}},
		{"--duration 2s --duration 2", options{Span: 2 * second}},
		{"-x --failed --failed=false", options{}},
		{"--full_na n", options{Name: "n"}},
		{"--fu n", options{Name: "n"}},
		{"--fa --lim=3 --lev -2", options{Failed: true, Limit: 3, Level: -2}},
		{"--full-name --lim", options{Name: "--lim"}},
		{"-xn n", options{Failed: true, Name: "n"}},
		{"--duration 2s", options{Span: 2 * second}},
		{"--duration 2", options{Span: 2 * second}},
		{"--spans 1,2s", options{Spans: []Duration{second, 2 * second}}},
		{"--limit 18446744073709551615", options{Limit: 1<<64 - 1}},
		{"--level -5", options{Level: -5}},
		{"--ratio=-1e3", options{Ratio: -1000}},
		{"1.5", options{Interval: 1.5}},
		{"1 3", options{Interval: 1, Count: 3}},
		{"1 -x 3", options{Interval: 1, Count: 3, Failed: true}},
		{"-x -- 1", options{Interval: 1, Failed: true}},
	} {
		var o options
		if err := parse(t, &o, nil, strings.Fields(tt.args)...); err != nil {
			t.Errorf("%q: %v", tt.args, err)
		} else if !reflect.DeepEqual(o, tt.want) {
			t.Errorf("%q: %+v, want %+v", tt.args, o, tt.want)
		}
	}
}

func TestShorts(t *testing.T) {
	var o options
	shorts := map[string]string{"pid": "P", "failed": "", "words": "w"}
	if err := parse(t, &o, shorts, "-P", "1", "-w", "a"); err != nil || len(o.PIDs) != 1 || len(o.Words) != 1 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, gone := range []string{"-p", "-x"} {
		if err := parse(t, &options{}, shorts, gone, "1"); !errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v", gone, err)
		}
	}
}

// The error of an invalid command line contains the reason.
func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--nope", "--nope"},
		{"-z", "'z'"},
		{"--pid", "--pid"},
		{"--pid x", `"x" is not a non-negative whole number`},
		{"--pid=", `"" is not a non-negative whole number`},
		{"--pid 1,,2", `"" is not a non-negative whole number`},
		{"--pid 1.5", `"1.5" is not a non-negative whole number`},
		{"--pid 0x10", `"0x10" is not a non-negative whole number`},
		{"--pid -1", `"-1" is not a non-negative whole number`},
		{"--pid 4294967296", "4294967296 is out of range"},
		{"--port 65536", "65536 is out of range"},
		{"--level 2147483648", "2147483648 is out of range"},
		{"--limit 18446744073709551616", "out of range"},
		{"--ratio NaN", `"NaN" is not a number`},
		{"--ratio Inf", `"Inf" is not a number`},
		{"--ratio 1e400", "1e400 is out of range"},
		{"--failed=maybe", `"maybe" is not true or false`},
		{"--full-name=", "empty"},
		{"--words a,,b", "empty"},
		{"-n a -n b", `invalid argument "b" for "-n, --full-name" flag: it takes one value and was given before as "a": give it once`},
		{"--full-name a --fullname b", `"b" for "--fullname" flag: it takes one value and was given before as "a"`},
		{"--limit 1 --limit 1 --limit 2", `"2" for "--limit" flag: it takes one value and was given before as "1"`},
		{"--duration x", `"x" is not a duration`},
		{"x", `interval: "x" is not a number`},
		{"NaN", `interval: "NaN" is not a number`},
		{"1 -- -1", `count: "-1" is not a non-negative whole number`},
		{"1 2 3", `unexpected argument "3"`},
		{"1 2 3 4", `unexpected argument "3"`},
	} {
		err := parse(t, &options{}, nil, strings.Fields(tt.args)...)
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, arg := range []string{"--help", "-h"} {
		if err := parse(t, &options{}, nil, arg); !errors.Is(err, ErrHelp) || errors.Is(err, ErrUsage) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// A list on the command line replaces the default without changing the slice of the default.
func TestListDefaults(t *testing.T) {
	defaults := options{Words: []string{"a", "b"}}
	o := defaults
	if err := parse(t, &o, nil, "--words", "c", "--words", "d"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(o.Words, defaults.Words); got != "[c d] [a b]" {
		t.Errorf("value and default: %s", got)
	}
}

// A flag or argument that is short for another flag sets it. A different value of that flag is
// refused, in any order, unless the short one was a default.
func TestSets(t *testing.T) {
	type synonyms struct {
		CSV    bool     `flag:"csv,s" sets:"output=csv"`
		Comma  bool     `flag:"comma,j" sets:"output=csv"`
		Folded bool     `flag:"folded,f" sets:"output=folded"`
		For    Duration `pos:"time" sets:"duration"`
		Output string   `flag:"output"`
		Span   Duration `flag:"duration"`
	}
	for _, tt := range []struct {
		args   string
		csv    bool // implied by an alias
		output string
		span   time.Duration
		err    string
	}{
		{"", false, "text", 0, ""},
		{"-s", false, "csv", 0, ""},
		{"-s -j", false, "csv", 0, ""},
		{"--csv=false --output json", false, "json", 0, ""},
		{"--csv --output csv", false, "csv", 0, ""},
		{"", true, "csv", 0, ""},
		{"--output json", true, "json", 0, ""},
		{"-f", true, "folded", 0, ""},
		{"1 -s", false, "csv", time.Second, ""},
		{"1 --duration 1s", false, "text", time.Second, ""},
		{"--duration 2", false, "text", 2 * time.Second, ""},
		{"-s --output json", false, "", 0, "--csv and --output json cannot be combined"},
		{"--output json -s", false, "", 0, "--csv and --output json cannot be combined"},
		{"--output=text --csv=true", false, "", 0, "--csv and --output text cannot be combined"},
		{"-s -f", false, "", 0, "--csv and --folded cannot be combined"},
		{"1 --duration 3", false, "", 0, "argument time (1s) and --duration 3s cannot be combined"},
		{"--duration 3 1", false, "", 0, "argument time (1s) and --duration 3s cannot be combined"},
	} {
		o := synonyms{Output: "text", CSV: tt.csv}
		s := New("tool")
		if err := s.Add(&o, nil); err != nil {
			t.Fatal(err)
		}
		err := s.Parse(strings.Fields(tt.args))
		switch {
		case tt.err != "":
			if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q: %v, want %q", tt.args, err, tt.err)
			}
		case err != nil || o.Output != tt.output || time.Duration(o.Span) != tt.span:
			t.Errorf("%q: %v, --output %s --duration %s, want %s and %s", tt.args, err, o.Output, o.Span, tt.output, tt.span)
		}
	}
}

func TestVariables(t *testing.T) {
	o := options{Knob: 3}
	s := New("tool")
	if err := s.Add(&o, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Parse([]string{"-x", "-n", "abc"}); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"targ_failed": true, "targ_name": "abc", "knob": uint32(3)}
	if got := s.Variables(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for variable, flag := range map[string]string{"targ_name": "full-name", "knob": "knob", "other": "other"} {
		if got := s.FlagOf(variable); got != flag {
			t.Errorf("%s is set by %s, want %s", variable, got, flag)
		}
	}
}

func TestAll(t *testing.T) {
	o := options{Words: []string{"a", "b"}, Span: Duration(90 * time.Second), Limit: 5}
	s := New("tool")
	if err := s.Add(&o, nil); err != nil {
		t.Fatal(err)
	}
	all := s.All()
	want := []Flag{
		{Long: "pid", Short: "p", Arg: "PID", Help: "processes"},
		{Long: "failed", Short: "x", Help: "failures only"},
		{Long: "full-name", Short: "n", Arg: "TEXT", Also: "fullname", Help: "the name"},
		{Long: "words", Arg: "N", Default: "a,b", Help: "words"},
		{Long: "duration", Arg: "TIME", Default: "1m30s", Help: "how long"},
		{Long: "spans", Arg: "N"},
		{Long: "limit", Arg: "N", Default: "5", Help: "rows"},
		{Long: "port", Arg: "N"},
		{Long: "level", Arg: "N"},
		{Long: "ratio", Arg: "N"},
		{Position: "interval", Help: "seconds"},
		{Position: "count", Help: "reports"},
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("got  %+v\nwant %+v", all, want)
	}
}

func TestAddRefuses(t *testing.T) {
	for name, opts := range map[string]any{
		"long name twice": &struct {
			A, B bool `flag:"same"`
		}{},
		"short name twice": &struct {
			A bool `flag:"a,x"`
			B bool `flag:"b,x"`
		}{},
		"dash and underscore": &struct {
			A bool `flag:"a-b"`
			B bool `flag:"a_b"`
		}{},
		"other name twice": &struct {
			A bool `flag:"a"`
			B bool `flag:"b" also:"a"`
		}{},
		"no name": &struct {
			A bool `flag:",x"`
		}{},
		"long short name": &struct {
			A bool `flag:"a,xy"`
		}{},
		"type": &struct {
			A chan int `flag:"a"`
		}{},
		"element type": &struct {
			A []complex64 `flag:"a"`
		}{},
		"map": &struct {
			A map[string]int `flag:"a"`
		}{},
		"bound of a text": &struct {
			A string `flag:"a" min:"x"`
		}{},
		"bound that is no number": &struct {
			A uint8 `flag:"a" max:"300"`
		}{},
		"id of what": &struct {
			A uint8 `flag:"a" id:"disk"`
		}{},
		"unexported": &struct {
			a bool `flag:"a"`
		}{},
	} {
		if err := New("tool").Add(opts, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]string{
		"2s": "2s", "1m": "1m0s", "1m30s": "1m30s", "250ms": "250ms", "2": "2s", "0.5": "500ms", "1e3": "16m40s", "1ns": "1ns",
		"9223372036": "2562047h47m16s",
	} {
		var d Duration
		if err := d.UnmarshalText([]byte(in)); err != nil || d.String() != want {
			t.Errorf("%q is %s, %v, want %s", in, d, err, want)
		}
	}
	for in, want := range map[string]string{
		"0": "not greater than zero", "0s": "not greater than zero", "-1": "not greater than zero", "-1s": "not greater than zero", "1e-12": "not greater than zero",
		"1e400": "out of range", "1e18": "out of range", "-1e18": "out of range", "Inf": "out of range", "-Inf": "out of range", "9223372037": "out of range",
		"NaN": "not a duration", "": "not a duration", "x": "not a duration", "2x": "not a duration", "2 s": "not a duration",
	} {
		d := Duration(7)
		if err := d.UnmarshalText([]byte(in)); err == nil || !strings.Contains(err.Error(), want) || d != 7 {
			t.Errorf("%q is %s, %v, want %q", in, d, err, want)
		}
	}
	if s := Duration(0).String(); s != "" {
		t.Errorf("the zero duration is %q, want \"\"", s)
	}
}

func TestMilliseconds(t *testing.T) {
	for in, want := range map[string]string{"10": "10ms", "0": "0s", "0.5": "500µs", "2s": "2s", "500us": "500µs", "1e3": "1s"} {
		var d Milliseconds
		if err := d.UnmarshalText([]byte(in)); err != nil || d.String() != want {
			t.Errorf("%q is %s, %v, want %s", in, d, err, want)
		}
	}
	for _, in := range []string{"-1", "-1s", "", "x", "NaN", "Inf", "1e400", "1e30", "2 s"} {
		d := Milliseconds(7)
		if err := d.UnmarshalText([]byte(in)); err == nil || !strings.Contains(err.Error(), "not a duration") || d != 7 {
			t.Errorf("%q is %s, %v", in, d, err)
		}
	}
	if v := Milliseconds(7).Variable(); v != uint64(7) {
		t.Errorf("variable %v", v)
	}
}

func TestMicroseconds(t *testing.T) {
	for in, want := range map[string]string{"10": "10µs", "0": "0s", "0.5": "500ns", "2s": "2s", "500ms": "500ms", "1e3": "1ms"} {
		var d Microseconds
		if err := d.UnmarshalText([]byte(in)); err != nil || d.String() != want {
			t.Errorf("%q is %s, %v, want %s", in, d, err, want)
		}
	}
	for _, in := range []string{"-1", "", "x", "NaN", "1e30"} {
		d := Microseconds(7)
		if err := d.UnmarshalText([]byte(in)); err == nil || !strings.Contains(err.Error(), "number of microseconds") || d != 7 {
			t.Errorf("%q is %s, %v", in, d, err)
		}
	}
	if v := Microseconds(7).Variable(); v != uint64(7) {
		t.Errorf("variable %v", v)
	}
}

type bounded struct {
	Sides
	N     uint8    `flag:"n" min:"1" max:"5" help:"number"`
	All   []int    `flag:"all" min:"-1" help:"numbers"`
	Ratio float64  `flag:"ratio" max:"0.5" help:"ratio"`
	Span  Duration `flag:"span" max:"1m" help:"span"`
	How   string   `flag:"how" of:"auto,fp,none" help:"how"`
	Count uint64   `pos:"count" min:"2" help:"count"`
}

// Sides is exported because embedded options must be.
type Sides struct {
	Left  bool `flag:"left" help:"left"`
	Right bool `flag:"right" help:"right"`
}

func (s *Sides) Check() error {
	if s.Left && s.Right {
		return errors.New("--left and --right exclude each other")
	}
	return nil
}

// The error for an invalid value names the flag, the value and the allowed values.
func TestBounds(t *testing.T) {
	for line, want := range map[string]string{
		"--n 0":            `invalid argument "0" for "--n" flag: it must be 1 to 5`,
		"--n 6":            `invalid argument "6" for "--n" flag: it must be 1 to 5`,
		"--all 1,-2":       `invalid argument "1,-2" for "--all" flag: it must be at least -1`,
		"--ratio 0.6":      `invalid argument "0.6" for "--ratio" flag: it must be at most 0.5`,
		"--span 61":        `invalid argument "61" for "--span" flag: it must be at most 1m0s`,
		"--how dwarf":      `invalid argument "dwarf" for "--how" flag: it must be auto, fp or none`,
		"1":                `invalid argument "1" for count: it must be at least 2`,
		"--left --right":   "--left and --right exclude each other",
		"--n 5":            "",
		"--all -1,7":       "",
		"--ratio -3":       "",
		"--span 60":        "",
		"--how fp 2":       "",
		"--right --how=fp": "",
	} {
		var o bounded
		s := New("tool")
		if err := s.Add(&o, nil); err != nil {
			t.Fatal(err)
		}
		err := s.Parse(strings.Fields(line))
		if want == "" && err != nil || want != "" && (!errors.Is(err, ErrUsage) || err.Error() != "usage: "+want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

func TestIDs(t *testing.T) {
	var o struct {
		PIDs []uint32 `flag:"pid" id:"process"`
		PPID uint32   `flag:"ppid" id:"process"`
		CPU  int32    `flag:"cpu" id:"cpu"`
	}
	o.CPU = -1
	s := New("tool")
	if err := s.Add(&o, nil); err != nil {
		t.Fatal(err)
	}
	if all := s.IDs(); len(all) != 0 {
		t.Errorf("without flags: %v", all)
	}
	if err := s.Parse([]string{"--pid", "1,2", "--cpu", "3"}); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(s.IDs()), "[{--pid process [1 2]} {--cpu cpu [3]}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Every command line is either parsed or returns ErrUsage or ErrHelp.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "-x", "--pid 1,2", "-p=1", "--duration NaN", "1 2 3", "--", "-", "--=", "-=", "---", "--failed=x", "--help",
		"--ratio 1e400", "-xn", "-xp1", "--full_name \x00", "--pid\n1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var o options
		err := parse(t, &o, nil, strings.Split(line, " ")...)
		if err != nil && !errors.Is(err, ErrUsage) && !errors.Is(err, ErrHelp) {
			t.Fatalf("%q: %v", line, err)
		}
		if o.Span < 0 || o.Ratio != o.Ratio || o.Interval != o.Interval {
			t.Fatalf("%q: %+v", line, o)
		}
	})
}

// The last positional argument takes all remaining arguments if its name ends with "...".
func TestRest(t *testing.T) {
	var o struct {
		First string   `pos:"first" help:"one"`
		Rest  []string `pos:"rest..." help:"all others"`
	}
	s := New("test")
	if err := s.Add(&o, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Parse([]string{"a", "b", "c,d", "e"}); err != nil {
		t.Fatal(err)
	}
	if o.First != "a" || strings.Join(o.Rest, " ") != "b c d e" {
		t.Errorf("parsed %+v", o)
	}
}

// TestPositionAndFlag gives a value as an argument, as a flag, and as both.
func TestPositionAndFlag(t *testing.T) {
	type options struct {
		Min   Microseconds `flag:"min,m" also:"least" pos:"min_us" help:"only longer times"`
		Every Duration     `pos:"interval" min:"1ms" help:"time between reports" unset:"one report by default"`
	}
	for args, want := range map[string]string{
		"10": "", "--min 10": "", "": "",
		"--min 5us 10":  `usage: --min 5µs and argument "10" for min_us cannot be combined: they set the same value`,
		"10 -m 10":      `usage: --min 10µs and argument "10" for min_us cannot be combined: they set the same value`,
		"--least 1ms 1": `usage: --least 1ms and argument "1" for min_us cannot be combined: they set the same value`,
		"1 1ns":         `usage: invalid argument "1ns" for interval: it must be at least 1ms`,
		"1 1ms":         "",
	} {
		s := New("tool")
		if err := s.Add(&options{}, nil); err != nil {
			t.Fatal(err)
		}
		err := s.Parse(strings.Fields(args))
		if err == nil && want != "" || err != nil && (err.Error() != want || !errors.Is(err, ErrUsage)) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
	for every, want := range map[Duration]Flag{
		0:                     {Position: "interval", Help: "time between reports; one report by default", Allowed: "at least 1ms"},
		Duration(time.Second): {Position: "interval", Help: "time between reports", Allowed: "at least 1ms", Default: "1s"},
	} {
		s := New("tool")
		if err := s.Add(&options{Every: every}, nil); err != nil {
			t.Fatal(err)
		}
		if all := s.All(); !reflect.DeepEqual(all[len(all)-1], want) {
			t.Errorf("%+v, want %+v", all[len(all)-1], want)
		}
	}
}

// A positional argument with skip:"others" is left out if its texts are not given, and is short for a
// flag otherwise.
func TestSkippedArgument(t *testing.T) {
	for line, want := range map[string]string{
		"7 2":           " 7 2",
		"ruby 7":        "ruby 7 0",
		"ruby 7 2":      "ruby 7 2",
		"ruby":          "ruby 0 0",
		"":              " 0 0",
		"7 ruby":        "",
		"cobol 7":       "",
		"-l java ruby":  "",
		"-l ruby ruby":  "ruby 0 0",
		"ruby ruby 7 2": "",
	} {
		var o struct {
			Word     string `pos:"language" of:"java,ruby" skip:"others" sets:"language" help:"language"`
			PID      uint32 `pos:"pid" help:"process"`
			Every    uint32 `pos:"interval" help:"interval"`
			Language string `flag:"language,l" help:"language"`
		}
		s := New("tool")
		if err := s.Add(&o, nil); err != nil {
			t.Fatal(err)
		}
		err := s.Parse(strings.Fields(line))
		got := fmt.Sprint(o.Language, " ", o.PID, " ", o.Every)
		if (want == "") != (err != nil) || err == nil && got != want {
			t.Errorf("%q: %q, %v, want %q", line, got, err, want)
		}
	}
}
