package tcpdrop

import (
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/value"
)

// state is a TCP state, 0 without a socket.
type state struct{ value.TCPState }

func (v *state) Absent() bool { return v.TCPState == 0 }

// flags are the flags of a TCP header.
type flags uint8

func flagNames() []string {
	return []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"}
}

func (v *flags) list() []string {
	out := []string{}
	for i, name := range flagNames() {
		if *v&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

func (v *flags) AppendText(b []byte) []byte { return append(b, strings.Join(v.list(), "|")...) }
func (v *flags) Any() any                   { return v.list() }

func (v *flags) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, name := range v.list() {
		if i > 0 {
			b = append(b, ',')
		}
		b = value.AppendString(b, name)
	}
	return append(b, ']')
}

func (v *flags) Schema() value.Schema {
	return value.Schema{Type: "array", Items: &value.Schema{Type: "string", Enum: flagNames()}}
}

// reasons contains the names of drop reasons of the running kernel, by number.
type reasons struct{ core, subsystems map[uint64]string }

// subsystemShift is SKB_DROP_REASON_SUBSYS_SHIFT: the bits above it are the subsystem.
const subsystemShift = 16

// name returns the name of a reason, "" for reason 0.
func (r *reasons) name(reason uint32) string {
	if reason == 0 {
		return ""
	}
	if name := r.core[uint64(reason)]; name != "" {
		return strings.TrimPrefix(strings.TrimPrefix(name, "SKB_DROP_REASON_"), "SKB_")
	}
	number := strconv.Itoa(int(reason & (1<<subsystemShift - 1)))
	if name := r.subsystems[uint64(reason>>subsystemShift)]; name != "" && reason>>subsystemShift != 0 {
		return strings.TrimPrefix(name, "SKB_DROP_REASON_SUBSYS_") + "_" + number
	}
	return strconv.Itoa(int(reason))
}
