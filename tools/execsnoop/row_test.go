package execsnoop

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/value"
)

// record is one record of an event, as sent by the program.
type record struct {
	cpu        uint32
	ret        int32
	file, args string
	off        uint32
	more       bool
}

func (r *row) take(rec record) error {
	r.event = event{CPU: rec.cpu, Ret: rec.ret, DirFD: -100, ArgsOff: rec.off, ArgsMore: rec.more}
	r.Names.FileLen, r.ArgsLen = uint32(len(rec.file)), uint32(len(rec.args))
	r.DataLen = r.Names.FileLen + r.ArgsLen
	return r.Decode([]byte(rec.file + rec.args + "pad")) // perf buffers pad
}

func newRow() *row { return &row{pending: map[producer]parts{}} }

func TestGather(t *testing.T) {
	more := source.ErrMore
	for _, c := range []struct {
		name    string
		records []record
		errs    []error
		file    string
		args    string
		pending int
	}{
		{"one record", []record{{file: "f\x00", args: "a\x00"}}, []error{nil}, "f", "a\x00", 0},
		{"three", []record{{file: "f\x00", args: "a\x00", more: true}, {args: "b", off: 2, more: true}, {args: "c\x00", off: 3}},
			[]error{more, more, nil}, "f", "a\x00bc\x00", 0},
		{"two CPUs", []record{{file: "f\x00", args: "a", more: true}, {cpu: 1, file: "g\x00", args: "b", more: true}, {args: "c", off: 1}},
			[]error{more, more, nil}, "f", "ac", 1},
		{"a failure between", []record{{file: "f\x00", args: "a", more: true}, {ret: -2, file: "g\x00", args: "b", more: true}, {args: "c", off: 1}},
			[]error{more, more, nil}, "f", "ac", 1},
		{"a single one between", []record{{file: "f\x00", args: "a", more: true}, {ret: -2, args: "b"}, {args: "c", off: 1}},
			[]error{more, nil, nil}, "f", "ac", 0},
		{"the last one lost", []record{{file: "f\x00", args: "a", more: true}, {file: "g\x00", args: "bb", more: true}, {args: "c", off: 2}},
			[]error{more, more, nil}, "g", "bbc", 0},
	} {
		r := newRow()
		for i, rec := range c.records {
			if err := r.take(rec); !errors.Is(err, c.errs[i]) {
				t.Errorf("%s: record %d: %v, want %v", c.name, i, err, c.errs[i])
			}
		}
		if string(r.File) != c.file || string(r.Args) != c.args || len(r.pending) != c.pending {
			t.Errorf("%s: file %q, args %q, %d pending", c.name, r.File, r.Args, len(r.pending))
		}
	}
}

func TestRecordsThatDoNotFit(t *testing.T) {
	r := newRow()
	if err := r.take(record{args: "c", off: 1}); err == nil || errors.Is(err, source.ErrMore) {
		t.Errorf("record without the first one: %v", err)
	}
	r.event = event{DataLen: 100, ArgsLen: 100}
	if err := r.Decode(make([]byte, 99)); err == nil {
		t.Error("a record shorter than its lengths is accepted")
	}
	r.event = event{DataLen: 10, ArgsLen: 11}
	if err := r.Decode(make([]byte, 99)); err == nil {
		t.Error("inconsistent lengths are accepted")
	}
}

func list(args ...string) value.List {
	if len(args) == 0 {
		return nil
	}
	return value.List(strings.Join(args, "\x00") + "\x00")
}

func TestGiven(t *testing.T) {
	for _, c := range []struct {
		args        []string
		interpreted bool
		want        []string
	}{
		{nil, false, nil},
		{[]string{"x"}, false, nil},
		{[]string{"x", "", "script"}, false, []string{"", "script"}},
		{[]string{"sh", "script"}, true, nil},
		{[]string{"sh", "script", "a", "script"}, true, []string{"a", "script"}},
		{[]string{"sh", "-e", "script", "a"}, true, []string{"a"}},
		{[]string{"sh", "-e", "other", "inner", "script", "a"}, true, []string{"a"}},
		{[]string{"sh", "cut"}, true, []string{"cut"}},
	} {
		got := callerArgs(list(c.args...), []byte("script"), c.interpreted)
		if !slices.Equal(got, list(c.want...)) {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
}

func TestFirst(t *testing.T) {
	for _, c := range []struct {
		list, want string
		n          int
		cut        bool
	}{
		{"", "", 1, false},
		{"a\x00", "a\x00", 1, false},
		{"a\x00b\x00", "a\x00", 1, true},
		{"\x00\x00\x00", "\x00\x00", 2, true},
		{"a\x00unended", "a\x00unended", 2, false},
		{"a\x00unended", "a\x00", 1, true},
	} {
		if got, cut := first(value.List(c.list), c.n); string(got) != c.want || cut != c.cut {
			t.Errorf("first %d of %q: %q, %v", c.n, c.list, got, cut)
		}
	}
}
