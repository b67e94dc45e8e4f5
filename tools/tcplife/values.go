package tcplife

import "github.com/corescope/corescope/internal/value"

// rowState mirrors enum row_state.
type rowState uint8

func rowStates() []string {
	return []string{bpfRowStateROW_CLOSED - 1: "closed", bpfRowStateROW_EXISTING - 1: "existing", bpfRowStateROW_OPEN - 1: "open"}
}

func (v *rowState) name() string               { return rowStates()[(*v-1)%3] }
func (v *rowState) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *rowState) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *rowState) Any() any                   { return v.name() }
func (v *rowState) Schema() value.Schema       { return value.Schema{Type: "string", Enum: rowStates()} }
