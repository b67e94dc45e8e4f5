// Package tcp has the options and columns that TCP tools share.
package tcp

import (
	"math/bits"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
)

// ConnectionMaps returns the size of the map of connections (conn.bpf.h): 16 times the current
// number of sockets, at least 2^16 and at most 2^20 entries. An unused entry takes 16 bytes, and a
// larger map extends the start. If the number of sockets cannot be read, the size is 2^20.
func ConnectionMaps() map[string]uint32 {
	const smallest, largest = 1 << 16, 1 << 20
	sockets, err := system.TCPSockets("/")
	if err != nil {
		return map[string]uint32{"conns": largest}
	}
	return map[string]uint32{"conns": uint32(max(smallest, min(largest, 1<<bits.Len(uint(16*sockets)))))}
}

// Family are the options that select connections or packets by the IP version on the wire
// (sock.bpf.h).
type Family struct {
	IPv4 bool `flag:"ipv4,4" bpf:"targ_ipv4" help:"only IPv4, including IPv4 on IPv6 sockets"`
	IPv6 bool `flag:"ipv6,6" bpf:"targ_ipv6" help:"only IPv6"`
}

// Ports are the options that select connections by their ports.
type Ports struct {
	LocalPorts  flags.Ports `flag:"localport,L" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports"`
	RemotePorts flags.Ports `flag:"remoteport,D" arg:"PORT" bpf:"targ_not_rports" help:"only these remote ports"`
}
