package flags

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Ports is a list of ports to filter by. An empty list selects all ports.
type Ports []uint16

// UnmarshalText adds the comma-separated ports and ranges of ports of s.
func (p *Ports) UnmarshalText(s []byte) error {
	for part := range strings.SplitSeq(string(s), ",") {
		from, to, isRange := strings.Cut(part, "-")
		first, err := parsePort(from)
		if err != nil {
			return err
		}
		last := first
		if isRange {
			if last, err = parsePort(to); err != nil {
				return err
			}
		}
		if last < first {
			return fmt.Errorf("%s is not a range of ports", part)
		}
		for n := first; n <= last; n++ {
			*p = append(*p, uint16(n))
		}
	}
	return nil
}

func parsePort(s string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err != nil {
		return 0, numError(s, "port", err)
	}
	return n, nil
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
