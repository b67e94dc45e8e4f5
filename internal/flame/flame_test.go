package flame

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/corescope/corescope/internal/value"
)

func function(name string, kernel bool) Frame {
	return FrameOf(&value.Frame{Symbol: name, Module: "/bin/prog", Kernel: kernel, BuildID: "ab"})
}

func sample(unit Unit) *Profile {
	main, read := function("main", false), function("sys_read", true)
	return &Profile{
		Title: "tool", Unit: unit, Begin: time.Unix(1e9, 0), Length: time.Second,
		Samples: []Sample{
			{[]Frame{LabelOf("a<b>&\x1b"), main, function("std::map<int; int>", false)}, 3000},
			{[]Frame{LabelOf("a<b>&\x1b"), main, read}, 2000},
			{[]Frame{LabelOf("a<b>&\x1b"), main, read}, 1500},
		},
	}
}

func render(t *testing.T, w Writer, p *Profile) string {
	t.Helper()
	var b bytes.Buffer
	if err := w(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFolded(t *testing.T) {
	got := render(t, Options{Marks: true}.Folded, sample(Nanoseconds))
	want := "a<b>&\\x1b;main;std::map<int: int> 3\na<b>&\\x1b;main;sys_read_[k] 3\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := render(t, Options{}.Folded, sample(Samples)); !strings.Contains(got, "main;sys_read 3500\n") {
		t.Errorf("got %q", got)
	}
}

// TestLines checks that inlined functions are marked, and that pprof output has source lines.
func TestLines(t *testing.T) {
	inner := FrameOf(&value.Frame{Symbol: "inner", Module: "/a", File: "/src/a.c", Line: 7, Inlined: true})
	outer := FrameOf(&value.Frame{Symbol: "outer", Module: "/a", File: "/src/a.c", Line: 9})
	p := &Profile{Title: "tool", Unit: Samples, Samples: []Sample{{[]Frame{outer, inner}, 1}}}
	if got, want := render(t, Options{Marks: true}.Folded, p), "outer a.c:9;inner a.c:7_[i] 1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got, err := profile.ParseData([]byte(render(t, Pprof, p)))
	if err != nil {
		t.Fatal(err)
	}
	if l := got.Sample[0].Location[0].Line[0]; l.Line != 7 || l.Function.Name != "inner" || l.Function.Filename != "/src/a.c" {
		t.Errorf("line is %+v of %+v", l, l.Function)
	}
}

func TestFrameName(t *testing.T) {
	f := FrameOf(&value.Frame{Module: "/usr/lib/x.so", Offset: 0x1234, Reason: "no symbols"})
	if f.Name != "x.so+0x1234" || f.Kind != User {
		t.Errorf("frame is %+v", f)
	}
}

func TestPprof(t *testing.T) {
	p := sample(Samples)
	p.Period = 10
	got, err := profile.ParseData([]byte(render(t, Pprof, p)))
	if err != nil {
		t.Fatal(err)
	}
	if err := got.CheckValid(); err != nil {
		t.Fatal(err)
	}
	if cpu := got.PeriodType; cpu.Type != "cpu" || cpu.Unit != "nanoseconds" || len(got.SampleType) != 2 || got.SampleType[0].Type != "samples" {
		t.Errorf("period in %+v, samples in %+v", cpu, got.SampleType)
	}
	var leaves []string
	var samples, ns int64
	for _, s := range got.Sample {
		leaves = append(leaves, s.Location[0].Line[0].Function.Name)
		samples += s.Value[0]
		ns += s.Value[1]
		if m := s.Location[0].Mapping; m == nil || m.File != "/bin/prog" || m.BuildID != "ab" {
			t.Errorf("mapping is %v", m)
		}
	}
	if samples != 6500 || ns != 65000 || got.Period != 10 || got.DurationNanos != 1e9 || strings.Join(leaves, " ") != "std::map<int; int> sys_read sys_read" {
		t.Errorf("%d samples, %d ns, leaves %q: %v", samples, ns, leaves, got)
	}
}

// TestPprofText checks that a name that is not valid UTF-8 does not make the profile unreadable.
func TestPprofText(t *testing.T) {
	p := &Profile{Unit: Calls, Samples: []Sample{{[]Frame{{Name: "a\xffb"}}, 1}}}
	got, err := profile.ParseData([]byte(render(t, Pprof, p)))
	if err != nil {
		t.Fatal(err)
	}
	if name := got.Sample[0].Location[0].Line[0].Function.Name; name != "a\uFFFDb" {
		t.Errorf("the function is %q", name)
	}
}

func TestSpeedscope(t *testing.T) {
	var got speedscopeFile
	if err := json.Unmarshal([]byte(render(t, Speedscope, sample(Nanoseconds))), &got); err != nil {
		t.Fatal(err)
	}
	p := got.Profiles[0]
	if len(got.Shared.Frames) != 4 || p.EndValue != 6500 || p.Unit != "nanoseconds" || len(p.Samples) != 3 || got.Shared.Frames[p.Samples[1][2]].Name != "sys_read" {
		t.Errorf("got %+v", got)
	}
}

// element is the SVG element of a function.
type element struct {
	Class string `xml:"class,attr"`
	V     uint64 `xml:"data-v,attr"`
	D     int    `xml:"data-d,attr"`
	Title string `xml:"title"`
}

func TestSVG(t *testing.T) {
	text := render(t, SVG, sample(Nanoseconds))
	dec := xml.NewDecoder(strings.NewReader(text))
	found := map[string]element{}
	for {
		token, err := dec.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "g" && start.Attr[0].Value == "f" {
			var e element
			if err := dec.DecodeElement(&e, &start); err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(e.Title, " (")
			found[name] = e
		}
	}
	for name, want := range map[string]element{"all": {V: 6500, D: 0}, "a<b>&\\x1b": {V: 6500, D: 1}, "main": {V: 6500, D: 2}, "sys_read": {V: 3500, D: 3}} {
		if got := found[name]; got.V != want.V || got.D != want.D {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	if len(found) != 5 {
		t.Errorf("%d functions: %v", len(found), found)
	}
}

// TestHTML checks that the page loads no external resources.
func TestHTML(t *testing.T) {
	text := render(t, HTML, sample(Samples))
	for _, bad := range []string{"a<b>", "src=", "href=", "http://www.example"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if !strings.Contains(text, "</html>") || !strings.Contains(text, "6500 samples") {
		t.Errorf("page is %s", text)
	}
}

// TestPageIsAsHighAsGraph checks the style rules that make the page as high as the graph, at most
// as high as the window, without empty space above the graph.
func TestPageIsAsHighAsGraph(t *testing.T) {
	layout := strings.Join(regexp.MustCompile(`(?m)^(body|main|main svg) .*$`).FindAllString(style, -1), " ")
	for rule, want := range map[string]bool{" height: 100vh": false, " max-height: 100vh": true, "margin-top: auto": false, " flex: 1;": false} {
		if got := strings.Contains(layout, rule); got != want {
			t.Errorf("the page has %q: %v, want %v: %s", rule, got, want, layout)
		}
	}
}

// TestEmpty checks that an empty profile can be written in every format.
func TestEmpty(t *testing.T) {
	for _, w := range []Writer{Options{}.Folded, Pprof, Speedscope, SVG, HTML} {
		render(t, w, &Profile{Title: "tool", Unit: Samples})
	}
}

// TestNarrow checks that frames too narrow to be visible are omitted, and that their number is
// printed.
func TestNarrow(t *testing.T) {
	p := &Profile{Title: "tool", Unit: Samples, Samples: []Sample{
		{[]Frame{function("wide", false)}, 1e9}, {[]Frame{function("narrow", false)}, 1},
	}}
	text := render(t, SVG, p)
	if strings.Contains(text, ">narrow (") || !strings.Contains(text, "(1 functions below") {
		t.Errorf("got %s", text)
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		name  string
		width float64
		want  string
	}{
		{"a/b.f", 100, "a/b.f"}, {"cmd/compile/ssa.Compile", 100, "ssa.Compile"}, {"cmd/compile/ssa.Compile", 60, "ssa.C.."},
		{"f(a/b, c/d)", 50, "f(a/.."}, {"kworker/0:1", 50, "kwor.."}, {"abc", 10, ""}, {"", 0, ""},
	} {
		if got := clip(test.name, test.width); got != test.want {
			t.Errorf("%q in %v: got %q, want %q", test.name, test.width, got, test.want)
		}
	}
}
