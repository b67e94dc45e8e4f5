// Package tcppktlat traces the time that received TCP segments wait until a task reads them.
package tcppktlat

import (
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tcp"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh tcppktlat.bpf.c

type options struct {
	Min   flags.Microseconds `flag:"min" pos:"min_us" arg:"US" bpf:"targ_min_ns" help:"only reads of data that waited at least this time: microseconds, or with a unit as 5ms"`
	LPort flags.Ports        `flag:"lport,l" arg:"PORT" bpf:"targ_not_lports" help:"only these local ports"`
	RPort flags.Ports        `flag:"rport,r" arg:"PORT" bpf:"targ_not_rports" help:"only these remote ports"`
	tcp.Family
	Timestamp bool `flag:"timestamp,T" help:"show the time"`
	tcp.Wide
}

type event struct {
	value.Task
	Latency value.Nanoseconds `json:"latency_ns" col:"MS,width=9,right" help:"time from the receipt of the first of the segments by TCP (tcp_probe), in a softirq of the receiving CPU or by a task that holds the socket, to the read of its first byte (tcp_rcv_space_adjust), CLOCK_BOOTTIME; text shows ms" btf:"latency_ns"`
	value.Ends
	Segments uint32 `json:"segments" col:"SEGS,width=4,right" help:"received segments of which this read is the first to take data; the kernel can have merged several segments on the wire into one before TCP receives it (GRO)"`
}

type row struct {
	event
	tcp.Version
}

// Decode computes the derived columns.
func (r *row) Decode([]byte) error {
	r.Family = r.RAddr.Family()
	return nil
}

// Tool is the definition of tcppktlat.
var Tool = tool.Define(tool.Spec{
	Name:     "tcppktlat",
	Category: "network",
	Summary:  "Trace TCP packet latency: from receipt by the kernel to the read by a task",
	Description: `Shows how long received data waits in the queue of its socket until a task reads it, in all network namespaces. There is a row each time that a task reads data of a segment for the first time. A read of many segments can have several rows. A long time means that the application is late: it is busy, waits for a CPU, or does not poll the socket.

The start is the receipt of a segment with new data by an established connection (tcp:tcp_probe). If the segment arrives while a task holds the lock of the socket, the start is when that task processes it. For a segment that arrives out of order, the time includes the wait for the missing data. The end is tcp:tcp_rcv_space_adjust, in the context of the reader. Reads with MSG_PEEK are not reads.

The kernel does not report the read of MPTCP connections, and the receipt of data after this end has shut down sending. Data received before the start of the tool has no row. For each socket, 64 unread segments are kept: more are counted in the summary (crowded), and have no row of their own. So are segments that nobody reads (unread).`,
	Peers: []string{
		"Each segment has its own time. libbpf-tools keeps one time per socket.",
		"Text shows the columns of libbpf-tools. -4 and -6 are additional.",
	},
	Examples: []string{
		"tcppktlat                # all reads",
		"tcppktlat 10000 -T       # data that waited 10 ms or more, with the time",
		"tcppktlat -l 443 -p 1234 # one process and port",
		"tcppktlat --container web 1000 --columns +segments  # a container, with the number of segments",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t"},
}, options{}, build)

// bufferBytes is enough for about 60,000 reads at once.
const bufferBytes = 8 << 20

func build(o *options, _ *tool.Env) (tool.Source, error) {
	e := &source.Events[row]{
		Columns:     []string{"pid", "tid", "comm", "laddr", "lport", "raddr", "rport", "latency_ns"},
		BufferBytes: bufferBytes,
	}
	if o.Timestamp {
		e.Columns = append([]string{"time"}, e.Columns...)
	}
	e.Widths = o.Widths("laddr", "raddr")
	return e, nil
}
