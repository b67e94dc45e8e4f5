// Package document generates documentation from the description of a tool: its manual page, its
// help, the JSON Schema of its output and the completion of its command line. It does not access
// the kernel and does not depend on how tools run.
package document

import (
	"reflect"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// Tool describes a tool with the options of one command line.
type Tool struct {
	// Name is the name in the documentation: the tool's name or an alias. Aliases are its other
	// names. If Name is an alias, StandsFor is the command line that it stands for.
	Name      string
	Aliases   []Alias
	StandsFor string
	// Summary is one line. Description is paragraphs of text, separated by empty lines.
	Summary, Description string
	// Peers lists the differences from other projects' tools of the same name. Overhead is the
	// measured cost.
	Peers    []string
	Overhead string
	// Examples are command lines, each followed by "# " and a comment.
	Examples []string
	// Privileges are paragraphs on capabilities.
	Privileges []string
	ExitCodes  []ExitCode

	// Kind is the value of "type" of its rows in JSON: see package output.
	Kind string
	// Screen reports whether text on a terminal is redrawn in place.
	Screen bool
	// Percentiles reports whether histograms have percentiles that the user selects.
	Percentiles bool
	Flags       []FlagGroup
	// Columns are all columns; of a histogram, its statistics. They are bound to a row in memory.
	Columns []column.Column
	// Keys are the columns that histograms can be grouped by.
	Keys []column.Column
	// Text lists the keys of the columns displayed in text by default, JSON those of JSON and CSV.
	Text, JSON []string
	// Hooks are sorted by name. Without lists the hooks that this command line does not use,
	// Optional those that the kernel does not need to support.
	Hooks             []probe.Hook
	Without, Optional []string
	StandIns          []probe.StandIn
	// Keep lists the capabilities that this command line keeps after all hooks are attached.
	Keep system.Capabilities
	// Iterators are the sections of iterator programs.
	Iterators []string
	// Lost lists the loss reasons, Counters the tool's other counters.
	Lost, Counters []string
	// Lines maps "explain" to the type of these lines of JSON output, and "stats" to the type of
	// that member of the summary.
	Lines map[string]reflect.Type
}

// Alias is another name of a tool and the command line that it stands for.
type Alias struct{ Name, StandsFor string }

// FlagGroup is the flags below one heading.
type FlagGroup struct {
	Title string
	Flags []flags.Flag
}

// ExitCode is an exit code and its meaning.
type ExitCode struct {
	Code    int
	Meaning string
}

// names lists the tool's name and its aliases.
func (t *Tool) names() []string {
	names := []string{t.Name}
	for _, a := range t.Aliases {
		names = append(names, a.Name)
	}
	return names
}
