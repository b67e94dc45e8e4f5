package tool

import (
	"context"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/value"
)

// fake is a tool that needs no object: its columns are those of a row.
type fake struct {
	Plan
	spec         Spec
	shows        string
	options      any
	row          any
	keys, labels []column.Column
	text         []string
	programs     map[string]string // sections by name
	variables    []string
}

type fakeRow struct {
	Time value.Time        `json:"time" help:"when"`
	Comm value.Comm        `json:"comm" help:"who"`
	Args value.List        `json:"args" help:"what"`
	Took value.Nanoseconds `json:"took_ns" help:"how long"`
	Note string            `json:"note" col:"NOTE,extra,need=want_note" help:"why"`
}

// FakeOptions are exported as embedded options must be.
type FakeOptions struct {
	Failed bool   `flag:"failed,x" bpf:"targ_failed" help:"only failures"`
	Every  uint64 `pos:"interval" min:"1" help:"seconds"`
	Count  uint64 `pos:"count" help:"times"`
}

// newFake returns a fake without faults.
func newFake() *fake {
	return &fake{
		spec: Spec{
			Name: "fake", Category: "file", Summary: "Show <nothing>", Description: "Shows nothing.",
			Examples: []string{"fake -x --filter 'comm == \"a | b\"' | head  # failures", "fake 1 2 # twice"},
		},
		shows: output.KindEvent, options: &FakeOptions{}, row: &fakeRow{}, text: []string{"time", "comm"},
		programs:  map[string]string{"open__btf": "tp_btf/sys_exit", "open__raw": "raw_tp/sys_exit", "list": "iter/task"},
		variables: []string{"targ_failed", "want_note"},
	}
}

func (f *fake) tool() *Tool {
	f.spec.Object = f.object
	return &Tool{Spec: f.spec, build: func() (any, func(*Env) (Source, error)) {
		return f.options, func(*Env) (Source, error) { return f, nil }
	}}
}

func (f *fake) object(...Variants) (*ebpf.CollectionSpec, error) {
	spec := &ebpf.CollectionSpec{Programs: map[string]*ebpf.ProgramSpec{}, Variables: map[string]*ebpf.VariableSpec{}}
	for name, section := range f.programs {
		prog := &ebpf.ProgramSpec{SectionName: section}
		if name == "list" {
			prog.AttachType = ebpf.AttachTraceIter
		}
		spec.Programs[name] = prog
	}
	for _, name := range f.variables {
		spec.Variables[name] = &ebpf.VariableSpec{}
	}
	return spec, nil
}

func (f *fake) Kind() string                        { return f.shows }
func (f *fake) Run(context.Context, *Session) error { return nil }

func (f *fake) Describe(*Env, *ebpf.CollectionSpec) (*Description, error) {
	cols, err := column.Of(f.row)
	if err != nil {
		return nil, err
	}
	all := append(f.keys[:len(f.keys):len(f.keys)], cols...)
	return &Description{Columns: &Columns{All: all}, Keys: f.keys, Labels: f.labels, Text: f.text}, nil
}
