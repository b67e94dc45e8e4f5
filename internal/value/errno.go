package value

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Error is a result whose failure is named. It is absent where the call went well.
type Error int32

// Absent reports that there was no error.
func (v *Error) Absent() bool { return *v >= 0 }

func (v *Error) name() string {
	if name := unix.ErrnoName(unix.Errno(-*v)); name != "" {
		return name
	}
	return strconv.Itoa(int(-*v))
}

func (v *Error) AppendText(b []byte) []byte { return append(b, v.name()...) }
func (v *Error) AppendJSON(b []byte) []byte { return AppendString(b, v.name()) }
func (v *Error) Schema() Schema             { return Schema{Type: "string"} }

func (v *Error) Any() any {
	if v.Absent() {
		return ""
	}
	return v.name()
}
