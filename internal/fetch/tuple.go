package fetch

import "github.com/corescope/corescope/internal/value"

// Tuple is a comparable copy of values.
type Tuple struct {
	site *Site
	data string
}

// Tuple returns a copy of the values.
func (v *Values) Tuple() Tuple { return Tuple{v.site, string(v.data)} }

func (t *Tuple) values() *Values { return &Values{site: t.site, data: []byte(t.data)} }

// AppendText appends name=value for each value.
func (t *Tuple) AppendText(b []byte) []byte { return t.values().AppendText(b) }

// AppendJSON appends an object, like [Values.AppendJSON].
func (t *Tuple) AppendJSON(b []byte) []byte { return t.values().AppendJSON(b) }

// Any returns the values by name.
func (t *Tuple) Any() any { return t.values().Any() }

// Schema returns the schema of an object.
func (t *Tuple) Schema() value.Schema { return t.values().Schema() }

// Absent reports whether there are no values.
func (t *Tuple) Absent() bool { return t.values().Absent() }
