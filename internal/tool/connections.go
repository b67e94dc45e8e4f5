package tool

import (
	"math/bits"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
)

// ConnectionMaps sizes the map of connections (conn.bpf.h): room for 16 times as many as there
// are sockets now, and for 2^16 to 2^20. An entry of it that is not used takes 16 bytes, and
// time at the start.
func ConnectionMaps() map[string]uint32 {
	const least, most = 1 << 16, 1 << 20
	sockets, err := system.TCPSockets("/")
	if err != nil {
		return map[string]uint32{"conns": most}
	}
	return map[string]uint32{"conns": uint32(max(least, min(most, 1<<bits.Len(uint(16*sockets)))))}
}

// Family are the options of tools that show connections or packets (sock.bpf.h), by what
// is on the wire.
type Family struct {
	IPv4 bool `flag:"ipv4,4" bpf:"targ_ipv4" help:"only IPv4, also on IPv6 sockets"`
	IPv6 bool `flag:"ipv6,6" bpf:"targ_ipv6" help:"only IPv6"`
}

// Ports are those of tools that show connections by their two ports.
type Ports struct {
	LocalPorts  flags.Ports `flag:"localport,L" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports"`
	RemotePorts flags.Ports `flag:"remoteport,D" arg:"PORT" bpf:"targ_not_rports" help:"only these remote ports"`
}
