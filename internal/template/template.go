// Package template shows the processes that fork.
package template

import (
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh template.bpf.c

// options are flags by their tags; bpf names the variable that takes the value.
type options struct {
	Timestamp bool `flag:"timestamp,T" help:"show the time"`
	Threads   bool `flag:"threads" bpf:"targ_threads" help:"new threads as well, not only processes"`
}

// event is struct event of template.bpf.c, and its fields are columns.
type event struct {
	value.Task
	ChildPID uint32 `json:"child_pid" col:"CHILD,width=7" help:"process id of the new task, in the initial PID namespace"`
	ChildTID uint32 `json:"child_tid" col:"CHILD_TID,width=9" help:"thread id of the new task, in the initial PID namespace"`
}

// Tool is template.
var Tool = tool.Define(tool.Spec{
	Name:        "template",
	Category:    "process",
	Summary:     "Show the processes that fork",
	Description: `Shows each new process, as the fork(2), vfork(2) or clone(2) that makes it has made it and before it runs. The task of a row is the one that forks.`,
	Examples: []string{
		"template            # every new process",
		"template -p 1234 -T # those of one process, with the time",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// build makes the source of the rows from the options.
func build(o *options, _ *tool.Env) (tool.Source, error) {
	columns := []string{"pid", "comm", "child_pid"}
	if o.Timestamp {
		columns = append([]string{"time"}, columns...)
	}
	return &tool.Events[event]{Columns: columns, BufferBytes: 1 << 20}, nil
}
