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

// String returns the name, such as SIGKILL, SIGRTMIN+3, or SIG32 for a signal that libc uses. Of an
// argument that is no signal it returns the number.
func (v Signal) String() string {
	switch name := unix.SignalName(syscall.Signal(v)); {
	case name != "":
		return name
	case v == firstRealtime:
		return "SIGRTMIN"
	case v > firstRealtime && v <= lastRealtime:
		return "SIGRTMIN+" + strconv.Itoa(int(v)-firstRealtime)
	case v > lastRealtime:
		return strconv.Itoa(int(int32(v)))
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

// ParseSignal returns the number of a signal given by name, with or without SIG, or by number. 0 is
// no signal, but an argument of kill(2).
func ParseSignal(s string) (Signal, error) {
	if n, err := strconv.ParseUint(s, 10, 32); err == nil && n <= lastRealtime {
		return Signal(n), nil
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")
	switch name { // second names, as in signal(7)
	case "SIGIOT":
		return Signal(unix.SIGABRT), nil
	case "SIGCLD":
		return Signal(unix.SIGCHLD), nil
	case "SIGPOLL":
		return Signal(unix.SIGIO), nil
	}
	if v, ok := parseRealtime(name); ok {
		return v, nil
	}
	for v := Signal(1); v <= lastRealtime; v++ {
		if v.String() == name {
			return v, nil
		}
	}
	return 0, fmt.Errorf("unknown signal %q: use a name such as SIGTERM, TERM, RTMIN+1 or RTMAX-1, or a number from 0 to %d", s, lastRealtime)
}

// parseRealtime returns the signal of SIGRTMIN, SIGRTMIN+N, SIGRTMAX or SIGRTMAX-N.
func parseRealtime(name string) (Signal, bool) {
	n, sign := firstRealtime, 1
	rest, ok := strings.CutPrefix(name, "SIGRTMIN")
	if !ok {
		n, sign = lastRealtime, -1
		if rest, ok = strings.CutPrefix(name, "SIGRTMAX"); !ok {
			return 0, false
		}
	}
	if rest != "" {
		distance, err := strconv.ParseUint(rest[1:], 10, 8)
		if err != nil || rest[0] != "+-"[(1-sign)/2] {
			return 0, false
		}
		n += sign * int(distance)
	}
	return Signal(n), n >= firstRealtime && n <= lastRealtime
}
