// Package dcsnoop traces lookups in the directory cache.
package dcsnoop

import (
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh dcsnoop.bpf.c

type options struct {
	All bool `flag:"all,a" help:"all lookups, not only misses"`
}

type event struct {
	value.Task
	Missed bool      `json:"missed" col:"MISSED,width=6" help:"whether the name was not in the cache"`
	Bytes  [255]byte `btf:"name"`
}

type row struct {
	event
	source.Elapsed
	Type string     `json:"lookup" col:"T,width=1" help:"M: a miss, a call of d_lookup that does not find the name; R: a reference, a call of lookup_fast for a component of a path, whether it is found or not"`
	File value.Name `json:"file" col:"FILE,width=32" help:"the name that is looked up, a single component of a path; the first 254 bytes of a longer one"`
}

// Decode computes the derived columns.
func (r *row) Decode(_ []byte) error {
	r.File = value.NameOf(r.Bytes[:])
	if r.Type = "R"; r.Missed {
		r.Type = "M"
	}
	return nil
}

// Tool is the definition of dcsnoop.
var Tool = tool.Define(tool.Spec{
	Name:     "dcsnoop",
	Category: "file",
	Summary:  "Trace directory cache (dentry cache, dcache) misses and lookups",
	Description: `Shows each name that the kernel does not find in its directory cache by d_lookup, so that it asks the file system; with -a also each component of a path that it looks up (lookup_fast).

Lookups are calls of kernel functions. They require fentry or kprobes, and -a that the compiler has not inlined lookup_fast; otherwise the tool does not start (exit code 4). A specialized copy such as lookup_fast.constprop.0 is found too.

Not all misses are calls of d_lookup: if lookup_fast fails for a component that is only read, as for stat(2), the kernel allocates the entry in d_alloc_parallel without a call of d_lookup, and no miss is shown.`,
	Peers: []string{
		"FILE of R rows is the component that is looked up; BCC and bpftrace show the rest of the path.",
		"lookup_fast is also found if the compiler has specialized it, where BCC does not start.",
	},
	Examples: []string{
		"dcsnoop               # misses",
		"dcsnoop -a -p 1234    # all lookups of one process",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	plan := tool.Plan{Resolve: resolve}
	if !o.All {
		plan = tool.Plan{Without: []string{"fast"}}
	}
	return &source.Events[row]{
		Plan: plan, Columns: []string{"elapsed_ns", "pid", "comm", "lookup", "file"}, BufferBytes: 8 << 20,
	}, nil
}

// resolve finds the functions of hook fast.
func resolve(p *tool.Plan, _ *tool.Kernel) error {
	var f target.Finder
	targets, err := f.Clones("lookup_fast")
	p.Instances = []tool.Instance{{Hook: "fast", Targets: targets}}
	return err
}
