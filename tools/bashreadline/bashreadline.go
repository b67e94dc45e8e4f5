// Package bashreadline traces lines entered in bash.
package bashreadline

import (
	"fmt"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh bashreadline.bpf.c

type options struct {
	Shared string `flag:"shared,s" arg:"PATH" bare:"libreadline" help:"trace only this libreadline or this bash executable; without PATH each libreadline.so; with --pid an absolute path is first looked up below the root of the process"`
	Any    bool   `flag:"any" bpf:"targ_any_program" help:"include lines that programs other than bash read with a shared libreadline"`
}

type event struct {
	value.Task
	LineLen   uint32
	Truncated bool `json:"truncated" col:"CUT,width=5" help:"the line is longer: command has only its first 8,191 bytes"`
	_         [3]byte
}

type row struct {
	event
	Command value.Bytes `json:"command" col:"COMMAND,width=40" help:"line that readline() returned, without the newline, before the shell parses it"`
}

// Tool is the definition of bashreadline.
var Tool = tool.Define(tool.Spec{
	Name:     "bashreadline",
	Category: "process",
	Summary:  "Trace command lines entered in interactive bash shells",
	Description: `Shows each line that an interactive bash reads with readline(), when it is entered, as typed or recalled from the history, before the shell expands it. A command of several lines has one row per line.

readline() is traced in every running bash and every libreadline that bash uses, including those in containers and those started later. A process counts as bash if the name of its executable starts with bash or rbash.

A shell that is already waiting for input when the probe is attached is traced from its next line on if the return of readline() can only be observed by a uretprobe, and from the current line on otherwise.

` + tool.ReturnsManual + ` readline() of bash 5.2 and of libreadline 8.2 is observed without --uretprobes.

A shell that is not interactive or has no line editing (bash -c, scripts, --noediting) does not call readline(). Nor do other shells. Lines can contain anything that users type, including passwords entered at the wrong prompt.`,
	Peers: []string{
		"All bash executables and libreadline files in use are traced; the peers trace only /bin/bash, or the library given with -s.",
		"-s without PATH traces all files libreadline.so that bash uses, and no bash executable; in BCC it is /lib/libreadline.so.",
		"The peers truncate lines at 80 bytes, and identify bash by its thread name, which a thread can change.",
	},
	Examples: []string{
		"bashreadline                           # all lines",
		"bashreadline --columns +user,container # with user and container",
		"bashreadline -s /opt/bash/bin/bash     # one bash executable",
	},
	Object:  loadBpf,
	Tasks:   true,
	Returns: true,
	Shorts:  map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	files := map[string]binary.Files{
		"bash":     {Names: []string{"bash", "rbash", "bash-*"}},
		"readline": {Names: []string{"libreadline.so*"}},
	}
	if o.Shared != "" {
		files["bash"] = binary.Files{}
	}
	if o.Shared != "" && o.Shared != "libreadline" {
		files["readline"] = binary.Files{Paths: []string{o.Shared}}
	}
	return &source.Events[row]{
		Plan:        tool.Plan{Files: files},
		Columns:     []string{"time", "pid", "command"},
		BufferBytes: 1 << 20,
	}, nil
}

// Decode reads the line, which follows the event.
func (r *row) Decode(tail []byte) error {
	if int(r.LineLen) > len(tail) {
		return fmt.Errorf("tail has %d bytes, the line has %d", len(tail), r.LineLen)
	}
	r.Command = tail[:r.LineLen]
	return nil
}
