package packetsnoop

import (
	"strings"

	"github.com/corescope/corescope/internal/value"
)

// addr is an address that not all packets have.
type addr struct {
	value.Addr
	given bool
}

func (v *addr) Absent() bool { return !v.given }

func (v *addr) Any() any {
	if !v.given {
		return ""
	}
	return v.Addr.Any()
}

// tcpFlagSet is the byte of the TCP header with the flags.
type tcpFlagSet struct {
	bits  uint8
	given bool
}

func flagNames() []string {
	return []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"}
}

func (v *tcpFlagSet) list() []string {
	out := []string{}
	for i, name := range flagNames() {
		if v.bits&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

func (v *tcpFlagSet) Absent() bool               { return !v.given }
func (v *tcpFlagSet) AppendText(b []byte) []byte { return append(b, strings.Join(v.list(), "|")...) }
func (v *tcpFlagSet) Any() any                   { return v.list() }

func (v *tcpFlagSet) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i, name := range v.list() {
		if i > 0 {
			b = append(b, ',')
		}
		b = value.AppendString(b, name)
	}
	return append(b, ']')
}

func (v *tcpFlagSet) Schema() value.Schema {
	return value.Schema{Type: "array", Items: &value.Schema{Type: "string", Enum: flagNames()}}
}
