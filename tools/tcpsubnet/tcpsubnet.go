// Package tcpsubnet counts the bytes sent over TCP to each subnet.
package tcpsubnet

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcpsubnet.bpf.c

type options struct {
	Every   flags.Duration `flag:"interval,i" arg:"SECONDS" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms"`
	Format  string         `flag:"format,f" arg:"UNIT" of:"b,k,m,B,K,M" help:"unit of text: bits (b, k, m) or bytes (B, K, M), of which K and M are 1,024 and 1,048,576"`
	JSON    bool           `flag:"json,J" sets:"output=json" help:"same as --output json"`
	Subnets subnets        `pos:"subnets" help:"subnets or addresses, separated by commas; an address belongs to the first one that contains it"`
	tcp.Family
}

// subnets are the subnets that are counted.
type subnets []netip.Prefix

// UnmarshalText parses a list of subnets.
func (v *subnets) UnmarshalText(s []byte) error {
	for word := range strings.SplitSeq(string(s), ",") {
		prefix, err := parseSubnet(strings.TrimSpace(word))
		if err != nil {
			return fmt.Errorf("%q is not a subnet such as 192.0.2.0/24, or an address", word)
		}
		*v = append(*v, prefix.Masked())
	}
	return nil
}

// parseSubnet parses a subnet, or an address, which is a subnet of its own. One of IPv4-mapped
// addresses, such as ::ffff:192.0.2.0/120, is one of IPv4, as the addresses of connections are.
func parseSubnet(s string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(s)
	if addr, errAddr := netip.ParseAddr(s); errAddr == nil && addr.Zone() == "" {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	if addr := prefix.Addr(); err == nil && addr.Is4In6() && prefix.Bits() >= 96 {
		prefix = netip.PrefixFrom(addr.Unmap(), prefix.Bits()-96)
	}
	return prefix, err
}

// find returns the subnet of an address.
func (v subnets) find(addr netip.Addr) string {
	for _, prefix := range v {
		if prefix.Contains(addr) {
			return prefix.String()
		}
	}
	return ""
}

// selected returns the subnets of the user, or those of BCC and all IPv6 addresses.
func (o *options) selected() subnets {
	if len(o.Subnets) > 0 {
		return o.Subnets
	}
	var all subnets
	for _, s := range []string{"127.0.0.1/32", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "0.0.0.0/0", "::/0"} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// key mirrors struct table_key, counts struct table_value.
type (
	key    struct{ RAddr value.Addr }
	counts struct{ TxBytes uint64 }
)

type row struct {
	Subnet  string `json:"subnet" col:"SUBNET,width=20" help:"subnet of the remote address; empty for addresses in none of the given subnets"`
	TxBytes amount `json:"tx_bytes" col:"SENT,width=12,right" help:"bytes that tasks passed to the kernel for sending in the interval; text shows the unit of --format"`
}

// amount is a number of bytes, which text shows in a unit.
type amount struct {
	bytes uint64
	unit  byte
}

func (v *amount) AppendText(b []byte) []byte {
	n := v.bytes
	if v.unit >= 'a' {
		n *= 8
	}
	switch v.unit {
	case 'k', 'K':
		return strconv.AppendFloat(b, float64(n)/(1<<10), 'f', 2, 64)
	case 'm', 'M':
		return strconv.AppendFloat(b, float64(n)/(1<<20), 'f', 2, 64)
	}
	return strconv.AppendUint(b, n, 10)
}

func (v *amount) AppendJSON(b []byte) []byte { return strconv.AppendUint(b, v.bytes, 10) }
func (v *amount) Any() any                   { return int(v.bytes) }
func (v *amount) Schema() value.Schema       { return value.Schema{Type: "integer"} }

// Tool is the definition of tcpsubnet.
var Tool = tool.Define(tool.Spec{
	Name:     "tcpsubnet",
	Category: "network",
	Summary:  "TCP bytes sent per destination subnet",
	Description: `Counts the bytes that tasks send over TCP per interval (one second by default), by the subnet of the remote address, in all network namespaces. An address belongs to the first subnet in the list that contains it. Only subnets with data in the interval have a row.

By default the subnets are the loopback address 127.0.0.1, the private networks of IPv4, all other IPv4 addresses and all IPv6 addresses.

Bytes are counted when the task passes them to the kernel. They differ from those on the wire, which include headers and retransmissions. The hooks are those of tcptop for sending: the functions tcp_sendmsg and mptcp_sendmsg or, if these cannot be traced, the tracepoint sock_send_length (kernel 6.3 and later). Before 6.5 sendfile is traced only with fentry (hook sendpage).`,
	Peers: []string{
		"Bytes are those that the kernel accepted. BCC counts the requested size.",
		"IPv6 is supported. BCC ignores data sent on IPv6 sockets.",
		"A row per subnet has columns; BCC prints lines without a header, and an object with -J. -J is --output json.",
		"-f k, m, K and M divide by 1,024 and 1,048,576, as in BCC. They are shown with two decimals, where BCC truncates.",
		"A subnet can be a single address, and be given in the form ::ffff:192.0.2.0/120.",
		"-v (BCC: debug output) is the verbose output of all tools.",
	},
	Examples: []string{
		"tcpsubnet                                 # bytes per second to private and public addresses",
		"tcpsubnet -i 10 -f m 192.0.2.0/24,0.0.0.0/0  # every 10 seconds, in Mbit: one network, and the others",
		"tcpsubnet --container web --duration 60s  # one container",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Every: flags.Duration(time.Second), Format: "B"}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	list := o.selected()
	return &source.Table[key, counts, row]{
		Plan:    tool.Plan{Optional: []string{"sendpage", "mptcp_send"}, Without: []string{"recv", "mptcp_recv", "option"}},
		Rounds:  source.Rounds{Every: o.Every},
		Ranking: source.Ranking{Sort: "tx_bytes"},
		Columns: []string{"subnet", "tx_bytes"},
		Label:   func(k *key, _ *counts) row { return row{Subnet: list.find(k.RAddr.IP())} },
		Fill:    func(r *row, c *counts, _ time.Duration) { r.TxBytes = amount{c.TxBytes, o.Format[0]} },
	}, nil
}
