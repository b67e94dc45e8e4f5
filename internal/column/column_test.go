package column

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/value"
)

type head struct {
	PID  uint32     `json:"pid" col:"PID,width=7" help:"process id"`
	Comm value.Comm `json:"comm" col:"COMM,width=16"`
	pad  uint32
}

type event struct {
	head
	Ret    int32 `json:"ret" col:"RET,width=3,right" help:"result"`
	hidden uint64
}

type row struct {
	event
	Error  value.Error `json:"error"`
	Path   value.Bytes `json:"path" col:",width=40,extra,need=want_path"`
	Bare   string      `json:"name" col:"NAME,bare"`
	Args   value.List  `json:"args" col:"ARGS"`
	At     value.Time  `json:"time" col:"AT"`
	Failed bool        `json:"failed"`
	Ratio  float64     `json:"ratio"`
	NoKey  uint32      `col:"X"`
}

// of returns the columns of *row.
func of(t testing.TB, row any) []Column {
	t.Helper()
	cols, err := Of(row)
	if err != nil {
		t.Fatal(err)
	}
	return cols
}

func TestOf(t *testing.T) {
	cols := of(t, &row{})
	if got, want := strings.Join(Keys(cols), " "), "pid comm ret error path name args time failed ratio"; got != want {
		t.Fatalf("keys %q, want %q", got, want)
	}
	for i, want := range []Column{
		{Key: "pid", Header: "PID", Width: 7, Help: "process id"},
		{Key: "comm", Header: "COMM", Width: 16},
		{Key: "ret", Header: "RET", Width: 3, Right: true, Help: "result"},
		{Key: "error", Header: "ERROR", Width: 5},
		{Key: "path", Header: "PATH", Width: 40, Extra: true, Need: "want_path"},
		{Key: "name", Header: "NAME", Width: 4, Bare: true},
	} {
		got := cols[i]
		got.Value = nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("column %+v, want %+v", got, want)
		}
	}
	if got := Standard(cols); slices.Contains(got, "path") || len(got) != len(cols)-1 {
		t.Errorf("standard columns: %v", got)
	}
}

// A row may have another value for a column of a struct that it embeds.
func TestReplace(t *testing.T) {
	type renamed struct {
		event
		Comm value.Bytes `json:"comm" col:"COMM,width=20,replace" help:"the whole name"`
	}
	r := &renamed{Comm: value.Bytes("kworker/u4:1-events")}
	cols := of(t, r)
	if got, want := strings.Join(Keys(cols), " "), "pid comm ret"; got != want {
		t.Errorf("keys %q, want %q", got, want)
	}
	comm := Find(cols, "comm")
	if got := string(comm.AppendText(nil)); got != "kworker/u4:1-events" || comm.Width != 20 || comm.Help != "the whole name" {
		t.Errorf("column %+v has %q", comm, got)
	}
}

func TestColumnsAreBound(t *testing.T) {
	r := &row{}
	cols := of(t, r)
	r.PID, r.Ret, r.Comm = 5, -2, value.Comm{'s', 'h'}
	r.hidden, r.pad = 1, 2
	for key, want := range map[string]string{"pid": "5", "ret": "-2", "comm": "sh"} {
		if got := string(Find(cols, key).AppendText(nil)); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if !Find(cols, "error").Absent() || Find(cols, "ret").Absent() {
		t.Error("a successful call has an error, or has no result")
	}
	if r.Error = -2; Find(cols, "error").Absent() {
		t.Error("a failed call has no error")
	}
}

func TestOfRejectsInvalidRows(t *testing.T) {
	type duplicate struct {
		head
		Other uint32 `json:"pid"`
	}
	n := 0
	for name, row := range map[string]any{
		"not a pointer": row{},
		"not a struct":  &n,
		"nil":           nil,
		"nil pointer":   (*row)(nil),
		"unsupported type": &struct {
			A chan int `json:"a"`
		}{},
		"dash as key": &struct {
			A uint32 `json:"-"`
		}{},
		"option in json tag": &struct {
			A uint32 `json:"a,omitempty"`
		}{},
		"upper case in key": &struct {
			A uint32 `json:"aB"`
		}{},
		"digit first in key": &struct {
			A uint32 `json:"9a"`
		}{},
		"duplicate key": &duplicate{},
		"replaces no column": &struct {
			A uint32 `json:"a" col:"A,replace"`
		}{},
		"invalid width": &struct {
			A uint32 `json:"a" col:"A,width=x"`
		}{},
		"unknown option": &struct {
			A uint32 `json:"a" col:"A,left"`
		}{},
	} {
		if cols, err := Of(row); err == nil {
			t.Errorf("%s: columns %v, want an error", name, Keys(cols))
		}
	}
}

func TestSelect(t *testing.T) {
	cols := of(t, &row{})
	defaults := []string{"pid", "ret"}
	all := strings.Join(Keys(cols), " ")
	for _, tt := range []struct{ words, want string }{
		{"", "pid ret"},
		{"comm", "comm"},
		{"comm path", "comm path"},
		{"path comm", "path comm"},
		{"comm comm", "comm"},
		{"+path", "pid ret path"},
		{"+path error", "pid ret path error"},
		{"+path +error", "pid ret path error"},
		{"+pid", "pid ret"},
		{"comm +path", "comm path"},
		{"all", all},
		{"comm all", "comm " + strings.Replace(all, " comm", "", 1)},
		{"+all", "pid ret " + strings.Replace(strings.TrimPrefix(all, "pid "), " ret", "", 1)},
		{"COMM Ret", "comm ret"},
		{"at", "time"},
	} {
		got, err := Select(cols, defaults, strings.Fields(tt.words))
		if err != nil || strings.Join(Keys(got), " ") != tt.want {
			t.Errorf("--columns %q: %q, %v, want %q", tt.words, Keys(got), err, tt.want)
		}
	}
	for _, word := range []string{"", "+", "nope", "+nope", "pid,ret", "pid "} {
		_, err := Select(cols, defaults, []string{word})
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("--columns %q: %v, want %v", word, err, ErrUnknown)
		} else if !strings.Contains(err.Error(), strings.TrimPrefix(word, "+")) || !strings.Contains(err.Error(), "pid, comm") {
			t.Errorf("error lacks the wrong name or the available columns: %v", err)
		}
	}
}

// A key takes precedence over the header of another column.
func TestFindPrefersKeys(t *testing.T) {
	cols := of(t, &struct {
		Errno uint32 `json:"errno" col:"ERROR"`
		Error uint32 `json:"error" col:"ERR"`
	}{})
	for name, want := range map[string]string{"error": "error", "ERROR": "error", "err": "error", "errno": "errno"} {
		if got := Find(cols, name).Key; got != want {
			t.Errorf("Find(%s) = %s, want %s", name, got, want)
		}
	}
	if c := Find(cols, "x"); c != nil {
		t.Errorf("Find(x) = %s, want nil", c.Key)
	}
}
