package value

import "strconv"

// Count is an optional number.
type Count struct {
	N     uint64
	Given bool
}

func (v *Count) Absent() bool               { return !v.Given }
func (v *Count) AppendText(b []byte) []byte { return strconv.AppendUint(b, v.N, 10) }
func (v *Count) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, v.N, 10) }
func (v *Count) Schema() Schema             { return Schema{Type: "integer"} }

// Any returns -1 if the number is absent.
func (v *Count) Any() any {
	if !v.Given {
		return -1
	}
	return integer(v.N)
}

// Offset is an optional number of bytes. Text shows whole KiB.
type Offset struct{ Count }

func (v *Offset) AppendText(b []byte) []byte { return strconv.AppendUint(b, v.N>>10, 10) }
