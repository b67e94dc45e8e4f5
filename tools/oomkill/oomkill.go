// Package oomkill traces the processes that the OOM killer selects.
package oomkill

import (
	"errors"
	"os"
	"strings"

	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh oomkill.bpf.c

type options struct{}

type event struct {
	value.Task
	TriggerCgroupID uint64 `json:"trigger_cgroup_id" col:"TRIG_CGROUP_ID,width=14" help:"ID of the cgroup of the triggering thread"`
	OOMCgroupID     uint64
	LimitPages      uint64
	Pages           uint64
	TotalVMPages    uint64
	AnonPages       uint64
	FilePages       uint64
	ShmemPages      uint64
	PageTableBytes  value.Size `json:"page_tables_bytes" col:"PGTABLES(KB),width=12,right" help:"page tables of the victim"`
	TriggerPID      uint32     `json:"trigger_pid" col:"TRIG_PID,width=8" help:"process that needed memory and so triggered the OOM killer, in the initial PID namespace"`
	TriggerTID      uint32     `json:"trigger_tid" col:"TRIG_TID,width=8" help:"thread of this process in which the OOM killer ran"`
	TriggerUID      uint32     `json:"trigger_uid" col:"TRIG_UID,width=8" help:"real user ID of this thread, in the initial user namespace"`
	TriggerComm     value.Comm `json:"trigger_comm" col:"TRIG_COMM,width=16" help:"name of this thread"`
	Constraint      int32
	Order           int32 `json:"order" col:"ORDER,width=5,right,hook=oom" help:"the allocation that failed was for 2^order contiguous pages; -1 if the OOM killer was requested with SysRq"`
	ScoreAdj        int32 `json:"oom_score_adj" col:"ADJ,width=5,right" help:"oom_score_adj of the victim"`
	Killed          bool  `json:"killed" col:"KILLED,width=6" help:"true if the OOM killer sent SIGKILL to the victim; false if the victim was already exiting, and was only given access to memory reserves"`
	PathTruncated   bool
	_               [2]uint8
	PathLen         uint32
}

type row struct {
	event
	TriggerContainer value.Name  `json:"trigger_container" col:"TRIG_CONTAINER,width=20" help:"container of the triggering thread: its name or short ID; absent outside containers"`
	TriggerCgroup    value.Name  `json:"trigger_cgroup" col:"TRIG_CGROUP,width=30" help:"path of the cgroup of the triggering thread"`
	Total            value.Count `json:"pages" col:"PAGES,width=10,right,hook=oom" help:"pages that the kernel could use for what ran out of memory, including swap: of the machine, of the cgroup up to its limit, or of the NUMA nodes; absent if the trigger itself was the exiting victim"`
	Scope            value.Name  `json:"constraint" col:"CONSTRAINT,width=13" help:"what ran out of memory: none (the machine), cpuset, memory_policy (NUMA nodes), or memcg (a cgroup reached its limit); absent if unknown, as on kernels where out_of_memory() cannot be traced, except for memcg in kernels with CONFIG_MEMCG_V1"`
	OOMCgroup        value.Name  `json:"oom_cgroup" col:"OOM_CGROUP,width=30" help:"path of the cgroup that reached its memory limit, in the hierarchy of the memory controller; absent with other constraints"`
	Limit            optSize     `json:"limit_bytes" col:"LIMIT(KB),width=12,right" help:"memory limit of this cgroup (memory.max, memory.limit_in_bytes), without swap; absent with other constraints"`
	TotalVM          value.Size  `json:"total_vm_bytes" col:"TOTAL_VM(KB),width=14,right" help:"virtual memory of the victim"`
	Anon             value.Size  `json:"anon_rss_bytes" col:"ANON_RSS(KB),width=13,right" help:"anonymous memory of the victim that was in memory"`
	File             value.Size  `json:"file_rss_bytes" col:"FILE_RSS(KB),width=12,right" help:"memory of files that the victim had mapped and that was in memory"`
	Shmem            value.Size  `json:"shmem_rss_bytes" col:"SHMEM(KB),width=12,right" help:"shared memory that the victim had mapped and that was in memory"`
	Load             value.Name  `json:"loadavg" col:"LOADAVG,width=28" help:"content of /proc/loadavg when corescope read the event: load averages of 1, 5 and 15 minutes, runnable and all threads, last PID"`

	env  *tool.Env
	page uint64
}

// optSize is an optional number of bytes. Text shows KiB.
type optSize struct{ value.Count }

func (v *optSize) AppendText(b []byte) []byte {
	size := value.Size(v.N)
	return size.AppendText(b)
}

// constraints are the names of enum oom_constraint.
var constraints = [...]value.Name{"none", "cpuset", "memory_policy", "memcg"}

const memcg = 3

// Decode looks up names and converts pages to bytes.
func (r *row) Decode(tail []byte) error {
	r.TriggerCgroup = value.Name(r.env.CgroupPath(r.TriggerCgroupID))
	r.TriggerContainer = value.Name(r.env.Owner(r.TriggerCgroupID).Name())
	r.Total = value.Count{N: r.Pages, Given: r.Pages > 0}
	r.Scope, r.OOMCgroup, r.Limit = "", "", optSize{}
	if r.Constraint >= 0 && int(r.Constraint) < len(constraints) {
		r.Scope = constraints[r.Constraint]
	}
	if r.Constraint == memcg {
		r.OOMCgroup = value.Name(value.AppendPath(nil, tail[:min(int(r.PathLen), len(tail))], r.PathTruncated))
		r.Limit.Count = value.Count{N: r.LimitPages * r.page, Given: true}
	}
	for _, c := range []struct {
		to    *value.Size
		pages uint64
	}{{&r.TotalVM, r.TotalVMPages}, {&r.Anon, r.AnonPages}, {&r.File, r.FilePages}, {&r.Shmem, r.ShmemPages}} {
		*c.to = value.Size(c.pages * r.page)
	}
	r.Load = value.Name(strings.TrimPrefix(system.LoadAverage(), "loadavg: "))
	return nil
}

// Tool is the definition of oomkill.
var Tool = tool.Define(tool.Spec{
	Name:     "oomkill",
	Category: "memory",
	Summary:  "Trace the OOM killer: processes killed because memory ran out, of the machine or of a cgroup",
	Description: `Shows each process that the kernel selects as a victim when memory runs out (OOM, out of memory), with the task that triggered it. PID, UID, COMM, cgroup and container are those of the victim; columns with TRIG are those of the task that needed memory. Task filters apply to the victim.

Victims are traced at oom:mark_victim, in the context of the triggering task. If the whole cgroup is killed (memory.oom.group), each of its processes has a row. A victim that is already exiting is not killed, but gets access to memory reserves; then killed is false. This is known from signal:signal_generate: the OOM killer sends SIGKILL to the victim immediately before it marks it.

What ran out of memory is read from the argument of the kernel function out_of_memory(), if that can be traced (hook oom; see --explain). Otherwise pages and order are not available. The cgroup that reached its limit, and the limit, are then known only in kernels with CONFIG_MEMCG_V1, where the cgroup is locked meanwhile.

The sizes of the victim's memory are exact at the time of the mark. Those in the kernel log can differ by some pages per CPU.

The load averages are read by corescope when it reads the event, usually within milliseconds.`,
	Peers: []string{
		"Each victim has a row. libbpf-tools and BCC show one process per call of oom_kill_process, also if it was already exiting, and miss the other processes of a cgroup that is killed as a whole.",
		"PAGES is the same number as in the peers: what the kernel could use in total, not what the victim used.",
		"The peers need kprobes. Here only PAGES and ORDER need a traceable function.",
		"Text has columns instead of a sentence.",
	},
	Examples: []string{
		"oomkill                                # each victim, until Ctrl-C",
		"oomkill --container web                # only victims in this container",
		"oomkill --columns +oom_cgroup,limit_bytes,anon_rss_bytes  # with the cgroup that reached its limit",
		`oomkill --filter 'constraint == "memcg" and pid != trigger_pid'  # kills in a cgroup that another process triggered`,
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(_ *options, env *tool.Env) (tool.Source, error) {
	perCPU, err := env.PerCPU()
	if err != nil && !errors.Is(err, tool.ErrUnsupported) {
		return nil, err
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Variables: perCPU, Optional: []string{"oom"}, RowNoun: "victim"},
		Columns:     []string{"time", "trigger_pid", "trigger_comm", "pid", "comm", "pages", "constraint", "limit_bytes", "loadavg"},
		Extra:       []string{"container", "cgroup"},
		BufferBytes: 1 << 20,
		Row:         row{env: env, page: uint64(os.Getpagesize())},
	}, nil
}
