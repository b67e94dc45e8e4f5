// Package biolatency shows how long disks take for their I/O.
package biolatency

import (
	"fmt"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/tool"
)

//go:generate ../../scripts/bpf2go.sh biolatency.bpf.c

type options struct {
	tool.Interval
	Milliseconds bool   `flag:"milliseconds,m" help:"show milliseconds, not microseconds"`
	Queued       bool   `flag:"queued,Q" bpf:"targ_queued" help:"count the time in the operating system's queue too"`
	Stages       bool   `flag:"stages" bpf:"want_stages" help:"a histogram for each of the times: queue, device and total"`
	Disks        bool   `flag:"disks,D" bpf:"want_disk" help:"a histogram for each disk"`
	Partitions   bool   `flag:"partitions,P" bpf:"want_partition" help:"a histogram for each partition, and one for each disk that has none"`
	Flags        bool   `flag:"flags,F" also:"flag" bpf:"want_flags" help:"a histogram for each set of flags"`
	Operations   bool   `flag:"operations" bpf:"want_operation" help:"a histogram for each operation: read, write, flush, discard, ..."`
	Cgroups      bool   `flag:"cgroups" help:"a histogram for each cgroup that issues I/O"`
	Containers   bool   `flag:"containers" help:"a histogram for each container that issues I/O, and one for what is in none"`
	Disk         string `flag:"disk,d" arg:"DISK" help:"only this disk or partition: vda, /dev/vda1, a name of the device mapper"`
	Extension    bool   `flag:"extension,e" help:"the mean, for BCC's sake: it is always there"`
	JSON         bool   `flag:"json,j" help:"the same as --output json"`
}

// histKey is struct hist_key.
type histKey struct {
	CgroupID  uint64
	Dev, Part uint32
	Flags     uint16
	Op, Stage uint8
	_         uint32
}

type label struct {
	Stage     string `json:"stage" help:"which time it is: queue from insertion to issue, device from issue to completion, total from insertion to completion"`
	Disk      string `json:"disk" help:"disk that the I/O is for"`
	Partition string `json:"partition" help:"partition that the I/O is for, the disk if it is for no partition or not known for which"`
	Flags     string `json:"flags" help:"flags and operation of the I/O"`
	Operation string `json:"operation" help:"operation of the I/O"`
	Cgroup    string `json:"cgroup" help:"path of the cgroup that the I/O was submitted for"`
	Container string `json:"container" help:"container of that cgroup; empty for what is in none"`
}

// Tool is biolatency.
var Tool = tool.Define(tool.Spec{
	Name:     "biolatency",
	Category: "block",
	Summary:  "Show how long disks take for their I/O, as a histogram",
	Object:   loadBpf,
	Tasks:    true,
	Shorts:   map[string]string{"pid": "p", "cgroup": "c"},
	Description: "d", Examples: []string{"biolatency # x"},
}, options{}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	dev, err := o.dev(env)
	if err != nil {
		return nil, err
	}
	plan := o.plan()
	plan.Variables["targ_dev"] = dev
	return &tool.Hists[histKey, label]{
		Plan:     plan,
		Interval: o.Interval,
		Unit:     o.unit(),
		Label:    func(k histKey) label { return o.label(k, env) },
		Keys:     o.keys(),
	}, nil
}

func (o *options) dev(env *tool.Env) (uint32, error) {
	if o.Disk == "" {
		return 0, nil
	}
	dev, err := env.Disks.Dev(o.Disk)
	if err != nil {
		return 0, fmt.Errorf("--disk: %w", err)
	}
	return dev, nil
}

func (o *options) unit() histogram.Unit {
	if o.Milliseconds {
		return histogram.Milliseconds
	}
	return histogram.Microseconds
}

// plan takes the hooks that this run needs. Disks without requests are seen only where
// they are told apart from those that they lie on, or their I/O would count twice.
func (o *options) plan() tool.Plan {
	cgroups, bios := o.Cgroups || o.Containers, o.Disks || o.Partitions || o.Disk != ""
	p := tool.Plan{
		Variables:  map[string]any{"want_cgroup": cgroups, "want_bios": bios},
		MapEntries: map[string]uint32{},
		Optional:   []string{"merge", "bioqueue", "biocomplete"},
	}
	if o.JSON {
		p.Output = "json"
	}
	if !cgroups {
		p.ForFilter = []string{"submit"}
	}
	if !o.Queued && !o.Stages {
		p.Without = append(p.Without, "insert")
	}
	if !bios {
		p.Without = append(p.Without, "bioqueue", "biocomplete")
		p.MapEntries["bios"] = 1
	}
	return p
}

func (o *options) keys() []string {
	var keys []string
	for _, by := range []struct {
		wanted bool
		key    string
	}{
		{o.Stages, "stage"}, {o.Disks, "disk"}, {o.Partitions, "partition"}, {o.Flags, "flags"},
		{o.Operations, "operation"}, {o.Cgroups, "cgroup"}, {o.Containers, "container"},
	} {
		if by.wanted {
			keys = append(keys, by.key)
		}
	}
	return keys
}
