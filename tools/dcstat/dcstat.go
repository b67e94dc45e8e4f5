// Package dcstat counts lookups in the directory cache.
package dcstat

import (
	"math"
	"time"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh dcstat.bpf.c

type options struct{ source.Rounds }

// counts mirrors struct totals.
type counts struct {
	Refs   uint64 `json:"refs" col:"REFS,width=8,right" help:"components of paths that the kernel looked up in the directory cache: calls of lookup_fast"`
	Slow   uint64 `json:"slow" col:"SLOW,width=8,right" help:"lookups with locks, such as those of names to be created, renamed or removed: calls of d_lookup"`
	Misses uint64 `json:"misses" col:"MISS,width=8,right" help:"calls of d_lookup that did not find the name"`
}

type row struct {
	counts
	RefRate  value.Rate    `json:"refs_per_s" col:"REFS/s,width=8,right" help:"refs per second"`
	SlowRate value.Rate    `json:"slow_per_s" col:"SLOW/s,width=8,right" help:"slow lookups per second"`
	MissRate value.Rate    `json:"misses_per_s" col:"MISS/s,width=8,right" help:"misses per second"`
	Hits     value.Percent `json:"hit_ratio_percent" col:"HIT%,width=8,right" help:"refs minus misses, at least 0, in percent of refs; absent without refs"`
}

// Tool is the definition of dcstat.
var Tool = tool.Define(tool.Spec{
	Name:     "dcstat",
	Category: "file",
	Summary:  "Directory cache (dentry cache, dcache) lookups and misses per interval",
	Description: `Counts lookups of names in the kernel's directory cache per interval (one second by default), and those that fail, so that the kernel asks the file system.

Lookups are calls of kernel functions: lookup_fast, called for each component of a path, and d_lookup. They require fentry or kprobes, and that the compiler has not inlined lookup_fast; otherwise the tool does not start (exit code 4). A specialized copy such as lookup_fast.constprop.0 is found too.

Not all misses are calls of d_lookup: if lookup_fast fails for a component that is only read, as for stat(2), the kernel allocates the entry in d_alloc_parallel without a call of d_lookup. So misses is a lower limit.`,
	Peers: []string{
		"The counts are those of BCC. lookup_fast is also found if the compiler has specialized it, where BCC does not start or counts nothing.",
		"HIT% is 0 if there are more misses than refs; BCC shows a negative number. Task filters are supported.",
	},
	Examples: []string{
		"dcstat             # a line each second",
		"dcstat 5 3         # three lines of five seconds each",
		"dcstat -p 1234     # one process",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{source.Rounds{Every: flags.Duration(time.Second)}}, build)

func build(o *options, _ *tool.Env) (tool.Source, error) {
	return &source.Table[struct{}, counts, row]{
		Plan:    tool.Plan{Resolve: resolve},
		Rounds:  o.Rounds,
		Columns: []string{"time", "refs_per_s", "slow_per_s", "misses_per_s", "hit_ratio_percent"},
		Fill:    fill,
	}, nil
}

// resolve finds the functions of hook fast.
func resolve(p *tool.Plan, _ *tool.Kernel) error {
	var f target.Finder
	targets, err := f.Clones("lookup_fast")
	p.Instances = []tool.Instance{{Hook: "fast", Targets: targets}}
	return err
}

func fill(r *row, c *counts, span time.Duration) {
	*r = row{counts: *c, Hits: value.Percent(math.NaN())}
	r.RefRate, r.SlowRate = value.NewRate(c.Refs, int64(span)), value.NewRate(c.Slow, int64(span))
	r.MissRate = value.NewRate(c.Misses, int64(span))
	if c.Refs > 0 {
		r.Hits = value.Percent(100 * float64(c.Refs-min(c.Refs, c.Misses)) / float64(c.Refs))
	}
}
