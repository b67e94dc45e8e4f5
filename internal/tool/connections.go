package tool

import "github.com/corescope/corescope/internal/flags"

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
