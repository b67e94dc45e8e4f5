package value

import "strconv"

// Count is a number that a row may not have.
type Count struct {
	N     uint64
	Given bool
}

func (v *Count) Absent() bool               { return !v.Given }
func (v *Count) AppendText(b []byte) []byte { return strconv.AppendUint(b, v.N, 10) }
func (v *Count) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, v.N, 10) }
func (v *Count) Schema() Schema             { return Schema{Type: "integer"} }

// Any is -1 where there is none.
func (v *Count) Any() any {
	if !v.Given {
		return -1
	}
	return integer(v.N)
}

// Offset is a number of bytes that a row may not have, and that text shows in whole units
// of 1,024.
type Offset struct{ Count }

func (v *Offset) AppendText(b []byte) []byte { return strconv.AppendUint(b, v.N>>10, 10) }
