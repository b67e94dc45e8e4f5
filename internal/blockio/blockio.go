// Package blockio is what tools of block requests share (rq.bpf.h).
package blockio

import (
	"fmt"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
)

// Options choose requests.
type Options struct {
	Disk string `flag:"disk,d" arg:"DISK" help:"only this disk or partition: vda, /dev/vda1, a name of the device mapper"`
}

// Plan has a table of as many requests as the disks of this machine may have at a time.
//
// Returns an error for a disk that is not there.
func (o Options) Plan(env *tool.Env) (tool.Plan, error) {
	entries, kept := system.RequestTable("/")
	p := tool.Plan{
		Variables:  map[string]any{"ios_kept": kept},
		MapEntries: map[string]uint32{"ios": entries},
		Optional:   []string{"merge"},
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

// DiskName is the name of a disk or partition; its numbers where it has none, as the
// hidden disks below a multipath one.
func DiskName(dev uint32, env *tool.Env) string {
	if name, ok := env.Disks.Name(dev); ok {
		return name
	}
	return fmt.Sprintf("%d:%d", dev>>20, dev&(1<<20-1))
}
