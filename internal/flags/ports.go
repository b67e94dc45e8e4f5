package flags

import (
	"math"
	"strconv"
	"strings"
)

// Ports is a list of ports to filter by. An empty list selects all ports.
type Ports []uint16

// UnmarshalText adds the comma-separated ports of s.
func (p *Ports) UnmarshalText(s []byte) error {
	for part := range strings.SplitSeq(string(s), ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 16)
		if err != nil {
			return numError(part, "port", err)
		}
		*p = append(*p, uint16(n))
	}
	return nil
}

// Variable returns the bitmap of sock.bpf.h: a bit is set for each port that is not selected.
func (p Ports) Variable() any {
	var out [(math.MaxUint16 + 1) / 64]uint64
	if len(p) == 0 {
		return out
	}
	for i := range out {
		out[i] = math.MaxUint64
	}
	for _, port := range p {
		out[port/64] &^= 1 << (port % 64)
	}
	return out
}
