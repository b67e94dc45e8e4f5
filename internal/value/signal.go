package value

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signal is the number of a signal, rendered as its name. It is absent if it is 0.
type Signal uint32

// The real-time signals that programs can use. libc uses those between 31 and the first one.
const (
	firstRealtime = 34
	lastRealtime  = 64
)

// String returns the name, such as SIGKILL, SIGRTMIN+3, or SIG32 for a signal that libc uses.
func (v Signal) String() string {
	switch name := unix.SignalName(syscall.Signal(v)); {
	case name != "":
		return name
	case v == firstRealtime:
		return "SIGRTMIN"
	case v > firstRealtime && v <= lastRealtime:
		return "SIGRTMIN+" + strconv.Itoa(int(v)-firstRealtime)
	}
	return "SIG" + strconv.Itoa(int(v))
}

func (v *Signal) AppendText(b []byte) []byte { return append(b, v.String()...) }
func (v *Signal) AppendJSON(b []byte) []byte { return AppendString(b, v.String()) }
func (v *Signal) Schema() Schema             { return Schema{Type: "string"} }
func (v *Signal) Absent() bool               { return *v == 0 }

// Any returns an empty text without a signal.
func (v *Signal) Any() any {
	if v.Absent() {
		return ""
	}
	return v.String()
}

// ParseSignal returns the number of a signal given by name, with or without SIG, or by number.
func ParseSignal(s string) (Signal, error) {
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")
	if n, err := strconv.ParseUint(s, 10, 32); err == nil && n > 0 && n <= lastRealtime {
		return Signal(n), nil
	}
	for v := Signal(1); v <= lastRealtime; v++ {
		if v.String() == name {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown signal %q: use a name such as SIGTERM or TERM, or a number from 1 to %d", s, lastRealtime)
}
