// Package virtiostat shows the buffers that are added to virtqueues.
package virtiostat

import (
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh virtiostat.bpf.c

type options struct {
	source.Rounds
	Timestamp bool   `flag:"timestamp,T" help:"show the time of each table"`
	Driver    string `flag:"driver,d" arg:"NAME" help:"only devices of this driver, such as virtio_blk"`
	Device    string `flag:"devname,n" arg:"NAME" help:"only this device, such as virtio0"`
	Debug     bool   `flag:"debug,D" sets:"verbose=true" help:"same as --verbose, for compatibility with BCC"`
}

// key mirrors struct table_key.
type key struct{ Queue uint64 }

// counts mirrors struct table_value.
type counts struct {
	InBuffers, OutBuffers, InBytes, OutBytes uint64
	Driver, Device, Name                     [32]byte
}

type row struct {
	Driver     value.Name `json:"driver" col:"Driver,width=16" help:"name of the driver"`
	Device     value.Name `json:"device" col:"Device,width=8" help:"name of the virtio device, as in /sys/bus/virtio/devices"`
	Queue      value.Name `json:"queue" col:"VQ Name,width=16" help:"name of the virtqueue that the driver chose"`
	InBuffers  uint64     `json:"in_sgs" col:"In SGs,width=12,right,counter" help:"buffers (scatter-gather entries) that the device writes, added to the virtqueue in the interval"`
	OutBuffers uint64     `json:"out_sgs" col:"Out SGs,width=12,right,counter" help:"buffers that the device reads"`
	InBytes    uint64     `json:"in_bytes" col:"In BW,width=16,right" help:"size of the buffers that the device writes, in bytes; it can write less, as for received packets"`
	OutBytes   uint64     `json:"out_bytes" col:"Out BW,width=16,right" help:"size of the buffers that the device reads, in bytes"`
}

// Tool is the definition of virtiostat.
var Tool = tool.Define(tool.Spec{
	Name:     "virtiostat",
	Category: "block",
	Summary:  "Buffers and bytes added to virtqueues (virtio: disks, network, ...), by device and queue",
	Description: `Counts, per interval (three seconds by default) and by virtqueue, the buffers that drivers of virtio devices add for the device: disks, network cards, consoles, file systems and others of a virtual machine. A virtqueue that nothing was added to has no row.

A buffer is an entry of a scatter-gather list. The device reads it (out) or writes it (in). Buffers are counted when a driver calls virtqueue_add_sgs(), virtqueue_add_outbuf(), virtqueue_add_inbuf(), virtqueue_add_inbuf_ctx() or, on newer kernels, their variants for mapped buffers; a call that fails because the virtqueue is full is counted too, and again when the driver repeats it. The bytes are the sizes of the buffers, with headers and status bytes of the driver.

The kernel has no tracepoints for this, so the tool needs fentry or kprobes. At most 16 lists of 512 buffers each are read of a call; a call with more is counted in part, and in the summary (truncated).`,
	Peers: []string{
		"Columns and flags are those of BCC. In SGs and Out SGs are numbers of buffers; for virtqueue_add_sgs, BCC counts lists of buffers.",
		"In BW and Out BW are bytes per interval, as in BCC. in_bytes and out_bytes in JSON are the same numbers.",
		"-d is --driver; --duration has no short form. Rows are sorted by in_bytes; see --sort.",
	},
	Examples: []string{
		"virtiostat                       # a table every three seconds",
		"virtiostat -T -d virtio_net 1 10 # network cards, each second, ten times, with the time",
		"virtiostat -n virtio0 --output json  # one device",
	},
	Object: loadBpf,
}, options{Rounds: source.Rounds{Every: flags.Duration(3 * time.Second)}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	t := &source.Table[key, counts, row]{
		Plan:    tool.Plan{Optional: []string{"mappedin", "mappedout"}},
		Rounds:  o.Rounds,
		Ranking: source.Ranking{Sort: "in_bytes"},
		Columns: []string{"driver", "device", "queue", "in_sgs", "out_sgs", "in_bytes", "out_bytes"},
		Label: func(_ *key, c *counts) row {
			return row{Driver: value.NameOf(c.Driver[:]), Device: value.NameOf(c.Device[:]), Queue: value.NameOf(c.Name[:])}
		},
		Fill: func(r *row, c *counts, _ time.Duration) {
			r.InBuffers, r.OutBuffers, r.InBytes, r.OutBytes = c.InBuffers, c.OutBuffers, c.InBytes, c.OutBytes
		},
		Keep: func(r *row) bool {
			return (o.Driver == "" || string(r.Driver) == o.Driver) && (o.Device == "" || string(r.Device) == o.Device)
		},
	}
	if o.Timestamp {
		t.Columns = append([]string{"time"}, t.Columns...)
	}
	return t, nil
}
