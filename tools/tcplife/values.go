package tcplife

import "github.com/corescope/corescope/internal/value"

// span is a time that is 0 where it is not known.
type span struct{ value.Nanoseconds }

func (v *span) Absent() bool { return v.Nanoseconds == 0 }

// rowState is enum row_state.
type rowState uint8

func rowStates() []string { return []string{"closed", "existing", "open"} }

func (v *rowState) name() string               { return rowStates()[(*v-1)%3] }
func (v *rowState) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *rowState) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *rowState) Any() any                   { return v.name() }
func (v *rowState) Schema() value.Schema       { return value.Schema{Type: "string", Enum: rowStates()} }

// direction is enum direction. It is 0 where it is not known.
type direction uint8

func directions() []string { return []string{"active", "passive"} }

func (v *direction) name() string               { return directions()[(*v-1)%2] }
func (v *direction) Absent() bool               { return *v == 0 }
func (v *direction) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *direction) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *direction) Schema() value.Schema       { return value.Schema{Type: "string", Enum: directions()} }

func (v *direction) Any() any {
	if v.Absent() {
		return ""
	}
	return v.name()
}
