// Package blockio contains what the tools for block I/O requests share (rq.bpf.h).
package blockio

import (
	"fmt"
	"sync"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/vmlinux"
)

// Options select requests.
type Options struct {
	Disk string `flag:"disk,d" arg:"DISK" help:"only this disk or partition: vda, /dev/vda1 or a device mapper name"`
}

// Plan returns a plan with a table that is large enough for all requests that can be in
// flight on the disks of this machine. It returns an error if the disk does not exist.
func (o Options) Plan(env *tool.Env) (tool.Plan, error) {
	size := sync.OnceValue(requestTable)
	p := tool.Plan{
		Variables:  map[string]any{},
		MapEntries: map[string]uint32{},
		Prefetch:   func() { size() },
		Resolve: func(p *tool.Plan, _ *tool.Kernel) error {
			size().set(p)
			return nil
		},
		Optional: []string{"merge"},
		Settle:   []tool.Iterator{{Program: "settle", Map: "ios"}},
	}
	if o.Disk == "" {
		return p, nil
	}
	dev, err := env.Disks.Dev(o.Disk)
	if err != nil {
		return p, fmt.Errorf("--disk: %w", err)
	}
	p.Variables["targ_dev"] = dev
	return p, nil
}

// tableSize is the size of the map of requests, and how many of its entries are kept.
type tableSize struct{ entries, kept uint32 }

// requestTable reads a file per hardware queue.
func requestTable() (size tableSize) {
	size.entries, size.kept = system.RequestTable("/")
	return size
}

// set sets the size of the map of requests, unless it is set.
func (s tableSize) set(p *tool.Plan) {
	p.Variables["ios_kept"] = s.kept
	if p.MapEntries["ios"] == 0 {
		p.MapEntries["ios"] = s.entries
	}
}

// BioQueuedFlag returns the flag of bios that are in progress; 0 if the kernel has no BTF: then bios that
// remain at the end of a run count as not observed to end.
func BioQueuedFlag() uint32 {
	bit, err := vmlinux.EnumValue("BIO_TRACE_COMPLETION")
	if err != nil {
		return 0
	}
	return 1 << bit
}

// DiskName returns the name of a disk or partition. If it has none, like the hidden disks of
// NVMe multipath, it returns the device number as major:minor.
func DiskName(dev uint32, env *tool.Env) string {
	if name, ok := env.Disks.Name(dev); ok {
		return name
	}
	return fmt.Sprintf("%d:%d", dev>>20, dev&(1<<20-1))
}

// UsualOperations is more than the number of operations that occur together: read, write, flush, discard and
// write_zeroes, and zone_append and zone_reset on zoned disks.
const UsualOperations = 8

// OperationName returns the name of an operation (enum block_op), as biolatency shows it.
func OperationName(op uint32) string {
	names := [...]string{
		"read", "write", "flush", "discard", "secure_erase", "write_zeroes", "write_same", "zone_append", "zone_open", "zone_close",
		"zone_finish", "zone_reset", "zone_reset_all", "driver_in", "driver_out", "scsi_in", "scsi_out", "unknown",
	}
	return names[min(int(op), len(names)-1)]
}
