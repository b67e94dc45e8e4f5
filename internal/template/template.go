// Package template traces new processes.
package template

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh template.bpf.c

// options are the command-line flags. The tag bpf names the BPF variable that a flag sets.
type options struct {
	Timestamp bool `flag:"timestamp,T" help:"show the time"`
	Threads   bool `flag:"threads" bpf:"targ_threads" help:"also show new threads, not only processes"`
}

// event mirrors struct event in template.bpf.c. Fields with a json tag are columns.
type event struct {
	value.Task
	ChildPID uint32 `json:"child_pid" col:"CHILD,width=7" help:"process ID of the new task, in the initial PID namespace"`
	ChildTID uint32 `json:"child_tid" col:"CHILD_TID,width=9" help:"thread ID of the new task, in the initial PID namespace"`
}

// row is an event with derived columns. The event must be the first field, because samples are
// copied into it. A tool without derived columns uses the event as its row.
type row struct {
	event
	Kind string `json:"kind" col:"KIND,width=7" help:"what was created: process, or thread of the process that forked"`
}

// Decode fills in the derived columns of an event. Its argument is the data that a program sends
// after struct event, such as a path; here there is none.
func (r *row) Decode(_ []byte) error {
	r.Kind = "process"
	if r.ChildPID != r.ChildTID {
		r.Kind = "thread"
	}
	return nil
}

// Tool is the definition of template.
var Tool = tool.Define(tool.Spec{
	Name:        "template",
	Category:    "process",
	Summary:     "Trace new processes (fork, vfork, clone)",
	Description: "Shows each new process when fork(2), vfork(2) or clone(2) has created it, before it first runs. The task columns describe the parent.",
	Examples: []string{
		"template            # all new processes",
		"template -p 1234 -T # children of one process, with the time",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

// build creates the source of the rows from the options.
func build(o *options, _ *tool.Env) (tool.Source, error) {
	columns := []string{"pid", "comm", "child_pid"}
	if o.Timestamp {
		columns = append([]string{"time"}, columns...)
	}
	if o.Threads {
		columns = append(columns, "child_tid", "kind")
	}
	return &source.Events[row]{Columns: columns, BufferBytes: 1 << 20}, nil
}
