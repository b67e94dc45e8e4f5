package tcplife

import "github.com/corescope/corescope/internal/value"

// rowState is enum row_state.
type rowState uint8

func rowStates() []string { return []string{"closed", "existing", "open"} }

func (v *rowState) name() string               { return rowStates()[(*v-1)%3] }
func (v *rowState) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *rowState) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *rowState) Any() any                   { return v.name() }
func (v *rowState) Schema() value.Schema       { return value.Schema{Type: "string", Enum: rowStates()} }
