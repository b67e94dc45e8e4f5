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
		t.Errorf("columns that are not extra: %v", got)
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
		t.Error("a call that went well has an error, or no result")
	}
	if r.Error = -2; Find(cols, "error").Absent() {
		t.Error("a call that failed has no error")
	}
}

func TestOfRefuses(t *testing.T) {
	type twice struct {
		head
		Other uint32 `json:"pid"`
	}
	n := 0
	for name, row := range map[string]any{
		"no pointer":  row{},
		"no struct":   &n,
		"nil":         nil,
		"nil pointer": (*row)(nil),
		"not a value": &struct {
			A chan int `json:"a"`
		}{},
		"a dash": &struct {
			A uint32 `json:"-"`
		}{},
		"an option": &struct {
			A uint32 `json:"a,omitempty"`
		}{},
		"capitals": &struct {
			A uint32 `json:"aB"`
		}{},
		"a digit": &struct {
			A uint32 `json:"9a"`
		}{},
		"key twice": &twice{},
		"width": &struct {
			A uint32 `json:"a" col:"A,width=x"`
		}{},
		"unknown word": &struct {
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
			t.Errorf("error does not say what is wrong and what there is: %v", err)
		}
	}
}

// A key goes before another column's header.
func TestFindPrefersKeys(t *testing.T) {
	cols := of(t, &struct {
		Errno uint32 `json:"errno" col:"ERROR"`
		Error uint32 `json:"error" col:"ERR"`
	}{})
	for name, want := range map[string]string{"error": "error", "ERROR": "error", "err": "error", "errno": "errno"} {
		if got := Find(cols, name).Key; got != want {
			t.Errorf("%s finds %s, want %s", name, got, want)
		}
	}
	if c := Find(cols, "x"); c != nil {
		t.Errorf("x finds %s", c.Key)
	}
}
