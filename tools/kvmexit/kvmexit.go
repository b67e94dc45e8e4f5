// Package kvmexit counts why virtual CPUs exit to the hypervisor.
package kvmexit

import (
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh kvmexit.bpf.c

type options struct {
	Every       flags.Duration `flag:"interval,i" arg:"TIME" min:"1ms" help:"time between reports" unset:"one report at the end by default"`
	For         flags.Duration `pos:"duration" sets:"duration" help:"stop after this time, same as --duration"`
	TIDs        string         `flag:"tids,T" arg:"LIST" sets:"tid" help:"only these threads, separated by commas, same as --tid"`
	VCPU        int64          `flag:"vcpu,v" arg:"N" min:"0" help:"only this vCPU, by the name that QEMU gives to its thread, such as CPU 0/KVM"`
	AllTIDs     bool           `flag:"alltids,a" help:"with --pid: one row per thread and reason"`
	Debug       bool           `flag:"debug,d" sets:"verbose=true" help:"same as --verbose, for compatibility with BCC"`
	Parallelism uint32         `flag:"max-parallelism,m" arg:"N" min:"1" help:"ignored, for compatibility with BCC"`
	source.Ranking
}

// key mirrors struct table_key.
type key struct {
	CgroupID               uint64
	PID, TID, Reason, Code uint32
	Comm                   value.Comm
}

// counts mirrors struct table_value.
type counts struct{ Count uint64 }

type row struct {
	PID      uint32      `json:"pid" col:"PID,width=8" help:"process of the virtual machine, such as qemu, in the initial PID namespace"`
	TID      uint32      `json:"tid" col:"TID,width=8" help:"thread that runs the vCPU; absent if --pid is given without --alltids"`
	VCPU     value.Count `json:"vcpu" col:"VCPU,width=4,right" help:"number of the vCPU, from the name of its thread (CPU N/KVM, by QEMU); absent with other names, and with tid"`
	Comm     value.Name  `json:"comm" col:"COMM,width=16" help:"name of the thread; absent with tid"`
	Reason   string      `json:"reason" col:"KVM_EXIT_REASON,width=32" help:"reason of the exit: name in the kernel's header of the processor (vmx.h, svm.h; on arm64 the exception class in esr.h) without its prefix, or a hexadecimal number"`
	Count    uint64      `json:"count" col:"COUNT,width=10,right" help:"exits for this reason in the interval"`
	CgroupID uint64      `json:"cgroup_id" col:"CGROUP_ID,width=10" help:"ID of the cgroup of the thread: inode number of its directory"`
}

// Tool is the definition of kvmexit.
var Tool = tool.Define(tool.Spec{
	Name:     "kvmexit",
	Category: "virtualization",
	Summary:  "Count VM exits of KVM virtual machines (vCPUs) by reason",
	Description: `Counts how often virtual CPUs exit from the guest to the hypervisor (KVM), by process, thread and reason. Exits cost time: a guest with many of them is slower than the same load on the host.

Exits are counted at kvm:kvm_exit, in the context of the thread that runs the vCPU. The tracepoint exists if the module kvm is loaded or built in; otherwise the tool ends with exit code 4. It needs tracefs. Exits that the kernel handles itself are included; KVM_RUN returns to user space only for some of them.

With --pid and without --alltids, all vCPUs of the process are added.`,
	Peers: []string{
		"Reasons without a name are shown as hexadecimal numbers.",
		"-T is --tid, which can be given several times. -m is accepted and ignored: no processing is needed at the end. -d is not supported.",
		"The rows of a run with --tid or --vcpu have the thread too.",
	},
	Examples: []string{
		"kvmexit 10                   # all virtual machines, for ten seconds",
		"kvmexit -p 1234              # one virtual machine, by reason",
		"kvmexit -p 1234 -a           # by vCPU and reason",
		"kvmexit -p 1234 -v 0 -i 1    # its first vCPU, each second",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "verbose": ""},
}, options{Ranking: source.Ranking{Sort: "count"}, VCPU: -1}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	t := &source.Table[key, counts, row]{
		Rounds:  source.Rounds{Every: o.Every},
		Ranking: o.Ranking,
		Columns: []string{"pid", "tid", "reason", "count"},
		Fill:    func(r *row, c *counts, _ time.Duration) { r.Count = c.Count },
	}
	if o.VCPU >= 0 {
		t.Plan.Variables = map[string]any{"targ_by_vcpu": true, "targ_vcpu": uint32(o.VCPU)}
	}
	merged := len(env.PIDs) > 0 && !o.AllTIDs && o.VCPU < 0
	if len(env.PIDs) > 0 {
		t.Columns = []string{"tid", "reason", "count"}
	}
	if merged {
		t.Columns = []string{"reason", "count"}
		t.Off = []string{"tid", "vcpu", "comm"}
	}
	t.Label = func(k *key, _ *counts) row { return label(k, merged) }
	return t, nil
}

func label(k *key, merged bool) row {
	r := row{PID: k.PID, CgroupID: k.CgroupID, Reason: reasonName(runtime.GOARCH, k.Reason, k.Code)}
	if !merged {
		r.TID, r.Comm, r.VCPU = k.TID, value.NameOf(k.Comm[:]), vcpu(k.Comm.String())
	}
	return r
}

// vcpu returns the number in a name such as "CPU 12/KVM".
func vcpu(name string) value.Count {
	rest, ok := strings.CutPrefix(name, "CPU ")
	number, _, isNamed := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(number, 10, 32)
	return value.Count{N: n, Given: ok && isNamed && err == nil}
}
