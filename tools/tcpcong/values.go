package tcpcong

import (
	"strconv"

	"github.com/corescope/corescope/internal/value"
)

// span is a duration. Text shows ms, or us if us is set.
type span struct {
	ns uint64
	us bool
}

func (v *span) AppendText(b []byte) []byte {
	if v.us {
		return strconv.AppendUint(b, v.ns/1000, 10)
	}
	return strconv.AppendFloat(b, float64(v.ns)/1e6, 'f', 3, 64)
}

func (v *span) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, v.ns, 10) }
func (v *span) Any() any                   { return int(v.ns) }
func (v *span) Schema() value.Schema       { return value.Schema{Type: "integer"} }
