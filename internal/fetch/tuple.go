package fetch

import "github.com/corescope/corescope/internal/value"

// Tuple is values that can be compared with others, and kept.
type Tuple struct {
	site *Site
	data string
}

// Tuple returns the values as one.
func (v *Values) Tuple() Tuple { return Tuple{v.site, string(v.data)} }

func (t *Tuple) values() *Values { return &Values{t.site, []byte(t.data)} }

// AppendText appends name=value for each.
func (t *Tuple) AppendText(b []byte) []byte { return t.values().AppendText(b) }

// AppendJSON appends an object, as [Values] have it.
func (t *Tuple) AppendJSON(b []byte) []byte { return t.values().AppendJSON(b) }

// Any returns the values by their names.
func (t *Tuple) Any() any { return t.values().Any() }

// Schema is that of an object.
func (t *Tuple) Schema() value.Schema { return t.values().Schema() }

// Absent tells that there are no values.
func (t *Tuple) Absent() bool { return t.values().Absent() }
