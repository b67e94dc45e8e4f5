// Package numasched traces tasks that move to another NUMA node.
package numasched

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh numasched.bpf.c

type options struct{}

type event struct {
	value.Task
	SrcNode uint32 `json:"src_node" col:"SRC_NID,width=8" help:"NUMA node of the CPU on which the thread ran before"`
	DstNode uint32 `json:"dst_node" col:"DST_NID,width=8" help:"NUMA node of the CPU that the thread is switched to"`
	CPU     uint32 `json:"cpu" col:"CPU,width=4" help:"CPU that the thread is switched to"`
	_       uint32
}

// Tool is the definition of numasched.
var Tool = tool.Define(tool.Spec{
	Name:     "numasched",
	Category: "scheduler",
	Summary:  "Trace threads that run on another NUMA node than before (NUMA migrations of tasks)",
	Description: `Shows each time that a thread runs on a CPU of another NUMA node than the one on which it ran before. Its memory is then remote, unless it was allocated on the new node or is migrated too.

The node is that of the CPU at sched_switch: noted when the thread leaves a CPU or is switched to one, and compared at the next switch to it. A migration between two nodes and back, without running in between, is not shown. The first run of a thread after the start of the tool is compared only if the thread has left a CPU during the run. Idle tasks do not move.

A machine with a single node has no such events; /sys/devices/system/node lists the nodes.

The kernel keeps 4 bytes per possible thread ID (kernel.pid_max), at most 16 MB. If the limit is raised during a run, threads with higher IDs are lost and counted as map_full.`,
	Peers: []string{
		"-p is --pid, -t is --tid and -c is --comm.",
		"COMM is the name of the thread that moved.",
		"The node of a thread that has exited is removed, so that a new thread with the same ID starts without one. There is no limit of 10,240 threads.",
	},
	Examples: []string{
		"numasched                       # all threads",
		"numasched -p 1234 --columns +cpu  # one process, with the CPU",
		"numasched --filter 'dst_node == 1' --duration 10s  # moves to node 1",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p", "tid": "t", "comm": "c"},
}, options{}, build)

func build(*options, *tool.Env) (tool.Source, error) {
	plan := tool.Plan{MapEntries: map[string]uint32{"task_nodes": system.PIDMax("/")}}
	if system.MemoryNodes("/") == 1 {
		plan.Note("this machine has one NUMA node: no thread can move to another one")
	}
	return &source.Events[event]{
		Plan:    plan,
		Columns: []string{"time", "pid", "tid", "src_node", "dst_node", "comm"}, BufferBytes: 1 << 20,
	}, nil
}
