package column

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/value"
)

type sortable struct {
	PID   uint32     `json:"pid"`
	Comm  value.Comm `json:"comm"`
	Ret   int32      `json:"ret"`
	Time  value.Time `json:"time"`
	Ratio float64    `json:"ratio"`
}

func TestOrder(t *testing.T) {
	var r sortable
	cols := of(t, &r)
	names := func(word string) string {
		o, err := NewOrder(cols, word)
		if err != nil {
			t.Fatal(err)
		}
		type entry struct {
			name  string
			value any
		}
		var entries []entry
		for _, in := range []sortable{
			{PID: 2, Comm: [16]byte{'b'}, Ret: -3, Time: 5},
			{PID: 10, Comm: [16]byte{'a'}, Ret: 0, Time: 7, Ratio: 0.5},
			{PID: 3, Comm: [16]byte{'c'}, Ret: -1, Time: 6, Ratio: -1},
		} {
			r = in
			entries = append(entries, entry{in.Comm.String(), o.Value()})
		}
		slices.SortFunc(entries, func(a, b entry) int { return o.Compare(a.value, b.value) })
		var out []string
		for _, e := range entries {
			out = append(out, e.name)
		}
		return strings.Join(out, "")
	}
	for word, want := range map[string]string{
		"pid": "acb", "+pid": "bca", "PID": "acb", "comm": "abc", "+comm": "abc", "ret": "acb", "+ret": "bca",
		"time": "acb", "ratio": "abc", "+ratio": "cba",
	} {
		if got := names(word); got != want {
			t.Errorf("by %s: %s, want %s", word, got, want)
		}
	}
	Find(cols, "ratio").Off = true
	if _, err := NewOrder(cols, "+ratio"); !errors.Is(err, ErrOff) {
		t.Errorf("by a column that is off: %v, want %v", err, ErrOff)
	}
	for _, word := range []string{"", "+", "none", "-pid"} {
		if _, err := NewOrder(cols, word); !errors.Is(err, ErrUnknown) {
			t.Errorf("by %q: %v", word, err)
		}
	}
}

// A column without a value sorts as the zero value.
func TestOrderWithoutValue(t *testing.T) {
	r := sortable{PID: 7}
	cols := of(t, &r)
	for _, set := range []func(*Column){func(c *Column) { c.Lacking = true }, func(c *Column) { c.Off = true }} {
		c := *Find(cols, "pid")
		set(&c)
		if got := (Order{Column: &c}).Value(); got != 0 {
			t.Errorf("%v", got)
		}
	}
}
