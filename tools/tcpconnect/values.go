package tcpconnect

import "github.com/corescope/corescope/internal/value"

// result mirrors enum result.
type result uint8

const waiting = result(bpfResultRESULT_WAITING)

func results() []string {
	return []string{
		bpfResultRESULT_CONNECTED - 1: "connected", bpfResultRESULT_FAILED - 1: "failed",
		bpfResultRESULT_CLOSED - 1: "closed", bpfResultRESULT_WAITING - 1: "waiting",
	}
}

func (v *result) name() string               { return results()[(*v-1)%4] }
func (v *result) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *result) AppendJSON(b []byte) []byte { return value.AppendString(b, v.name()) }
func (v *result) Any() any                   { return v.name() }
func (v *result) Schema() value.Schema       { return value.Schema{Type: "string", Enum: results()} }
