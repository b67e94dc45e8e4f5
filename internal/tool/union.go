package tool

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/document"
)

// Schema returns the JSON Schema of the lines of --output json for all command lines: it allows all
// rows and requires what all of them have. [Facts.Schema] is that of a single command line.
func (t *Tool) Schema() ([]byte, error) {
	all, err := t.shapes()
	if err != nil {
		return nil, err
	}
	return document.UnionSchema(all)
}

// shapes describes the tool for each command line that can determine the keys of its rows: without
// options, with each of its own boolean flags, and with the arguments of each example.
func (t *Tool) shapes() ([]*document.Tool, error) {
	spec, err := t.Object()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	once := *t
	once.Object = func(...Variants) (*ebpf.CollectionSpec, error) { return spec.Copy(), nil }
	f, err := once.Facts()
	if err != nil {
		return nil, err
	}
	all := []*document.Tool{f}
	for _, args := range variations(f) {
		// A flag that needs another one, or something this machine lacks, is skipped.
		if other, err := once.Facts(args...); err == nil {
			all = append(all, other)
		}
	}
	return all, nil
}

// variations returns these command lines, except the one without options.
func variations(f *document.Tool) [][]string {
	var all [][]string
	for _, flag := range f.Flags[0].Flags {
		if flag.Long != "" && flag.Arg == "" {
			all = append(all, []string{"--" + flag.Long})
		}
	}
	for _, example := range f.Examples {
		all = append(all, ExampleArgs(example))
	}
	return all
}
