package tcpaccept

import (
	"strconv"

	"github.com/corescope/corescope/internal/value"
)

// count is a number, -1 if unknown.
type count int32

func (v *count) Absent() bool               { return *v < 0 }
func (v *count) AppendText(b []byte) []byte { return strconv.AppendInt(b, int64(*v), 10) }
func (v *count) AppendJSON(b []byte) []byte { return v.AppendText(b) }
func (v *count) Any() any                   { return int(max(*v, 0)) }
func (v *count) Schema() value.Schema       { return value.Schema{Type: "integer"} }
