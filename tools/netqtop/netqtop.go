// Package netqtop counts packets by queue of network interfaces.
package netqtop

import (
	"fmt"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh netqtop.bpf.c

type options struct {
	Name       string         `flag:"name,n" arg:"INTERFACE" bpf:"targ_name" help:"only network interfaces of this name"`
	Every      flags.Duration `flag:"interval,i" arg:"TIME" min:"1ms" help:"time between reports, in seconds or with a unit as 500ms"`
	Throughput bool           `flag:"throughput,t" help:"show bytes and packets per second"`
}

// Check returns an error for a name that no interface can have.
func (o *options) Check() error {
	if len(o.Name) > 15 {
		return fmt.Errorf("--name %s: names of network interfaces have at most 15 bytes", o.Name)
	}
	return nil
}

// key mirrors struct table_key.
type key struct {
	Name           [16]byte
	NetNS, IfIndex uint32
	Queue          uint16
	IsTX           uint8
	_              uint8
}

// counts mirrors struct table_value.
type counts struct {
	Packets  uint64 `json:"packets" col:"PACKETS,width=8,right" help:"packets in the interval; one that the interface splits (segmentation offload) or has assembled (GRO) is one packet"`
	Bytes    uint64 `json:"bytes" col:"BYTES,width=10,right" help:"bytes of these packets: sent ones with the Ethernet header, received ones without it"`
	Below64  uint64 `json:"packets_below_64" col:"[0;64),width=8,right,counter" help:"of these, packets of less than 64 bytes" btf:"below_64"`
	Below512 uint64 `json:"packets_below_512" col:"[64;512),width=8,right,counter" help:"packets of 64 to 511 bytes" btf:"below_512"`
	Below2K  uint64 `json:"packets_below_2k" col:"[512;2K),width=8,right,counter" help:"packets of 512 to 2,047 bytes" btf:"below_2k"`
	Below16K uint64 `json:"packets_below_16k" col:"[2K;16K),width=8,right,counter" help:"packets of 2,048 to 16,383 bytes" btf:"below_16k"`
	Below64K uint64 `json:"packets_below_64k" col:"[16K;64K),width=9,right,counter" help:"packets of 16,384 to 65,535 bytes" btf:"below_64k"`
	Larger   uint64 `json:"packets_larger" col:"[64K;),width=6,right,counter" help:"packets of 65,536 bytes or more"`
}

type row struct {
	Direction string     `json:"direction" col:"DIR,width=3" help:"TX for sent packets, RX for received ones"`
	Interface value.Name `json:"interface" col:"DEV,width=15" help:"name of the network interface"`
	Queue     uint16     `json:"queue" col:"QueueID,width=7" help:"number of the queue: that selected for a sent packet, that recorded by the driver for a received one; 0 if the driver records none"`
	AvgBytes  value.Mean `json:"avg_bytes" col:"avg_size,width=8,right" help:"mean size of the packets in bytes"`
	counts
	ByteRate   value.Rate `json:"bytes_per_s" col:"BPS,width=10,right" help:"bytes per second"`
	PacketRate value.Rate `json:"packets_per_s" col:"PPS,width=10,right" help:"packets per second"`
	NetNS      uint32     `json:"netns" col:"NETNS,width=10" help:"network namespace of the interface: inode number of /proc/PID/ns/net"`
	IfIndex    uint32     `json:"ifindex" col:"IF,width=3,right" help:"index of the interface in its network namespace"`
}

// Tool is the definition of netqtop.
var Tool = tool.Define(tool.Spec{
	Name:     "netqtop",
	Category: "network",
	Summary:  "Count packets by queue of network interfaces (NIC queues), with their sizes",
	Description: `Counts the packets that network interfaces send and receive in each interval (one second by default), by interface, direction and queue, in all network namespaces. If the queues of an interface have very different numbers of packets, its load is not balanced over CPUs.

A sent packet is counted when the kernel passes it to the driver (net:net_dev_start_xmit), with the queue that the kernel has selected. A received packet is counted when the network stack receives it (net:netif_receive_skb), with the queue that the driver has recorded; after GRO, which can combine several packets into one. Packets that XDP programs drop or redirect are not counted.

Virtual interfaces such as bridges, VLANs and veth have rows too, so a packet can have several.`,
	Peers: []string{
		"-n is optional; without it, all interfaces are shown. BCC requires it.",
		"One table has both directions; BCC prints two. Rows are sorted by queue, with --filter and JSON as in all tools.",
		"Ranges of sizes are written with a semicolon. Packets of 64 KB and more, as in BIG TCP, have a column of their own.",
	},
	Examples: []string{
		"netqtop -n eth0           # one interface, each second",
		"netqtop -n eth0 -t -i 5   # with throughput, every five seconds",
		"netqtop --filter 'direction == \"RX\" && packets > 1000' # busy receive queues of all interfaces",
	},
	Object: loadBpf,
}, options{Every: flags.Duration(time.Second)}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	cols := []string{"direction", "interface", "queue", "avg_bytes", "packets_below_64", "packets_below_512", "packets_below_2k", "packets_below_16k", "packets_below_64k", "packets_larger"}
	if o.Throughput {
		cols = append(cols, "bytes_per_s", "packets_per_s")
	}
	t := &source.Table[key, counts, row]{
		Rounds: source.Rounds{Every: o.Every}, Ranking: source.Ranking{Sort: "+queue"},
		Columns: cols,
		Label: func(k *key, _ *counts) row {
			return row{
				Direction: map[uint8]string{0: "RX", 1: "TX"}[k.IsTX], Interface: value.NameOf(k.Name[:]), Queue: k.Queue, NetNS: k.NetNS,
				IfIndex: k.IfIndex,
			}
		},
		Fill: fill,
	}
	t.NoteInterface(o.Name)
	return t, nil
}

func fill(r *row, c *counts, span time.Duration) {
	r.counts = *c
	r.AvgBytes = value.Mean{Sum: c.Bytes, N: c.Packets}
	r.ByteRate, r.PacketRate = value.NewRate(c.Bytes, int64(span)), value.NewRate(c.Packets, int64(span))
}
