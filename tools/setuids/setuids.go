// Package setuids traces changes of user and group IDs.
package setuids

import (
	"strconv"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh setuids.bpf.c

type options struct {
	Failed bool `flag:"failed,x" bpf:"targ_failed" help:"only failed calls; setfsuid and setfsgid do not report failures"`
}

type ids struct{ Real, Effective, Saved, FS uint32 }

type event struct {
	value.Task
	Before    ids
	After     ids
	Ret       int64 `json:"ret" col:"RET,width=5,right" help:"return value: 0 or -errno; of setfsuid and setfsgid the previous ID"`
	Args      [3]int32
	NR        uint32
	ABI       uint32
	NrArgs    uint8
	Group     bool
	FS        bool
	HasBefore bool
}

type row struct {
	event
	Syscall      string      `json:"syscall" col:"SYSCALL,width=11" help:"name of the call; 32-bit tasks have setuid32 and so on with 32-bit IDs, and setuid and so on with 16-bit IDs"`
	Kind         string      `json:"kind" col:"KIND,width=5" help:"which IDs the call sets: user or group"`
	Values       string      `json:"args" col:"ARGS,width=26" help:"IDs as in the call, in the user namespace of the caller; -1 leaves an ID unchanged"`
	Error        value.Error `json:"error" col:"ERROR,width=8" help:"name of the errno of a failed call"`
	OldReal      value.Count `json:"old_real_id" col:"OLD_REAL,width=8,right" help:"real user or group ID before the call, in the initial user namespace; absent if the start of the call was not observed, as are old_effective_id, old_saved_id and old_fs_id"`
	OldEffective value.Count `json:"old_effective_id" col:"OLD_EFF,width=8,right" help:"effective ID before the call"`
	OldSaved     value.Count `json:"old_saved_id" col:"OLD_SAVED,width=9,right" help:"saved ID before the call"`
	OldFS        value.Count `json:"old_fs_id" col:"OLD_FS,width=8,right" help:"ID for file accesses before the call"`
	NewReal      uint32      `json:"new_real_id" col:"NEW_REAL,width=8,right" help:"real user or group ID after the call, in the initial user namespace"`
	NewEffective uint32      `json:"new_effective_id" col:"NEW_EFF,width=8,right" help:"effective ID after the call"`
	NewSaved     uint32      `json:"new_saved_id" col:"NEW_SAVED,width=9,right" help:"saved ID after the call"`
	NewFS        uint32      `json:"new_fs_id" col:"NEW_FS,width=8,right" help:"ID for file accesses after the call"`

	calls *value.Syscalls
}

// Decode names the call and its arguments.
func (r *row) Decode(_ []byte) error {
	r.Syscall = r.calls.Name(value.ABI(r.ABI), r.NR)
	r.Kind, r.Values = "user", args("uid", r.Args[:min(int(r.NrArgs), 3)])
	if r.Group {
		r.Kind, r.Values = "group", args("gid", r.Args[:min(int(r.NrArgs), 3)])
	}
	r.Error = 0
	if !r.FS {
		r.Error = value.Error(r.Ret)
	}
	old := func(id uint32) value.Count { return value.Count{N: uint64(id), Given: r.HasBefore} }
	r.OldReal, r.OldEffective = old(r.Before.Real), old(r.Before.Effective)
	r.OldSaved, r.OldFS = old(r.Before.Saved), old(r.Before.FS)
	r.NewReal, r.NewEffective, r.NewSaved, r.NewFS = r.After.Real, r.After.Effective, r.After.Saved, r.After.FS
	return nil
}

// args returns the arguments with the names that setresuid(2) has for them.
func args(name string, values []int32) string {
	if len(values) == 1 {
		return name + "=" + id(values[0])
	}
	text := ""
	for i, v := range values {
		if i > 0 {
			text += " "
		}
		text += "res"[i:i+1] + name + "=" + id(v)
	}
	return text
}

// id returns an ID as text. IDs are unsigned, except that -1 leaves an ID unchanged.
func id(v int32) string {
	if v == -1 {
		return "-1"
	}
	return strconv.FormatUint(uint64(uint32(v)), 10)
}

// Tool is the definition of setuids.
var Tool = tool.Define(tool.Spec{
	Name:     "setuids",
	Category: "security",
	Summary:  "Trace changes of user and group IDs: setuid, setresuid, setgid and so on (privilege changes)",
	Description: `Shows each call of setuid(2), setreuid, setresuid, setfsuid, setgid, setregid, setresgid and setfsgid when it returns, of 64-bit and 32-bit tasks, with the IDs before and after it.

The IDs are those of the calling thread. libc changes the IDs of a process with several threads by a call in each thread, so each has a row. UID is the real user ID after the call. The task filter --uid applies to it.

Calls are traced at raw_syscalls:sys_enter and sys_exit. A set-user-ID program changes the effective ID by execve(2), not by these calls: see execsnoop(8).`,
	Peers: []string{
		"setreuid, the calls for groups, and the calls of 32-bit tasks are traced; bpftrace traces setuid, setresuid and setfsuid of 64-bit tasks.",
		"UID is the user ID after the call; bpftrace shows the one before it (old_real_id).",
	},
	Overhead: "The programs at the start and at the end of system calls took 73 and 60 ns per call, of which about 20 each are the measurement (1.6 million calls on a busy machine, --stats).",
	Examples: []string{
		"setuids                                     # all calls",
		"setuids -x                                  # failed calls",
		"setuids --filter 'new_effective_id == 0 and old_effective_id != 0'  # tasks that become root",
		"setuids --columns +old_effective_id,new_effective_id                # with the effective IDs",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(_ *options, _ *tool.Env) (tool.Source, error) {
	return &source.Events[row]{
		Plan:        tool.Plan{RowNoun: "call"},
		Columns:     []string{"time", "pid", "comm", "uid", "syscall", "args", "ret"},
		BufferBytes: 1 << 20,
		Row:         row{calls: value.NewSyscalls()},
	}, nil
}
