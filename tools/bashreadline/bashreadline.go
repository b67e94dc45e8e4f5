// Package bashreadline shows the lines that are typed into bash.
package bashreadline

import (
	"fmt"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh bashreadline.bpf.c

type options struct {
	Shared string `flag:"shared,s" arg:"PATH" help:"only this libreadline, or this bash"`
	Any    bool   `flag:"any" bpf:"targ_any_program" help:"lines that any program reads by a shared libreadline, not bash alone"`
}

type event struct {
	value.Task
	LineLen   uint32
	Truncated bool `json:"truncated" col:"CUT,width=5" help:"the line goes on: only its first 8,191 bytes are here"`
	_         [3]byte
}

type row struct {
	event
	Command value.Bytes `json:"command" col:"COMMAND,width=40" help:"the line that readline() returned, without its end; the shell has not looked at it yet"`
}

// Tool is bashreadline.
var Tool = tool.Define(tool.Spec{
	Name:     "bashreadline",
	Category: "process",
	Summary:  "Show the lines that are typed into bash",
	Description: `Shows each line that an interactive bash has read by readline(), at the moment when it was entered: as it was typed or taken from the history, and before it is expanded. A command of several lines is a row for each line.

readline() is probed in every bash that is running, and in every libreadline, where bash uses that: those of containers too, and those that are started later. A bash counts as one by the name of its program (bash..., rbash).

A shell that waits for a line as it comes to be probed is seen from its next line on: the return of a call is seen only where its beginning was.

A shell that is not interactive or has no line editing (bash -c, scripts, --noediting) does not call readline(). Neither do other shells. The lines are whatever users type, passwords in the wrong place among them.`,
	Peers: []string{
		"Every bash and libreadline is probed, where the peers probe /bin/bash, or the library that -s names.",
		"The peers cut lines at 80 bytes, and know bash by the name of the thread, which it may change.",
	},
	Examples: []string{
		"bashreadline                           # every line",
		"bashreadline --columns +user,container # and who typed it, where",
		"bashreadline -s /opt/bash/bin/bash     # of one bash",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	files := map[string]binary.Files{
		"bash":     {Names: []string{"bash", "rbash", "bash-*"}},
		"readline": {Names: []string{"libreadline.so*"}},
	}
	if o.Shared != "" {
		files["bash"] = binary.Files{}
		files["readline"] = binary.Files{Paths: []string{o.Shared}}
	}
	return &tool.Events[row]{
		Plan:        tool.Plan{Files: files},
		Columns:     []string{"time", "pid", "command"},
		BufferBytes: 1 << 20,
	}, nil
}

// Decode reads the line behind the event.
func (r *row) Decode(tail []byte) error {
	if int(r.LineLen) > len(tail) {
		return fmt.Errorf("event has %d bytes of a line of %d", len(tail), r.LineLen)
	}
	r.Command = tail[:r.LineLen]
	return nil
}
