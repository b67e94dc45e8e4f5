// Package numamove counts migrations of misplaced pages between NUMA nodes.
package numamove

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh numamove.bpf.c

// misplaced is the reason of migrations by NUMA balancing.
const misplaced = "numa_misplaced"

type options struct {
	source.Rounds
	Reason string `flag:"reason" arg:"NAME" help:"count migrations for this reason, a name in the kernel's enum migrate_reason without MR_, such as compaction; all for all reasons"`
}

// counts mirrors struct totals.
type counts struct{ Migrations, Ns, Pages, Failed uint64 }

type row struct {
	Migrations uint64            `json:"migrations" col:"NUMA_migrations,width=18,right" help:"migrations that ended in the interval: each is an attempt to move one or more pages to another place"`
	Duration   value.Nanoseconds `json:"total_ns" col:"NUMA_migrations_ms,width=18,right,hook=begin,counter" help:"sum of their durations, from mm_migrate_pages_start to mm_migrate_pages (CLOCK_MONOTONIC); text shows milliseconds"`
	Pages      uint64            `json:"pages" col:"PAGES,width=10,right" help:"pages that were moved"`
	Failed     uint64            `json:"failed_pages" col:"FAILED,width=8,right,counter" help:"pages that could not be moved"`
}

// Tool is the definition of numamove.
var Tool = tool.Define(tool.Spec{
	Name:     "numamove",
	Category: "memory",
	Summary:  "Count page migrations of NUMA balancing: misplaced pages that are moved to another node",
	Description: `Counts, per interval (one second by default), the migrations of pages that a task accesses from another NUMA node than that of their memory. NUMA balancing (kernel.numa_balancing) moves such pages to the node of the task. The task waits meanwhile.

Migrations are counted at migrate:mm_migrate_pages if their reason is numa_misplaced. They happen in the context of the task that accesses the page, so task filters apply to this task. The duration begins at migrate:mm_migrate_pages_start; on kernels without it, such as 5.10, it is not available.

With --reason, migrations for other reasons are counted, such as compaction or demotion.

The summary has the number of migrations in progress at the end of the run (in_progress), and of those whose duration is unknown because they began before the run (no_begin).`,
	Peers: []string{
		"The duration is that of the migration alone; libbpf-tools measures migrate_misplaced_folio(), which also isolates the page, and needs fentry or kprobes.",
		"Pages, failures and task filters are additional.",
	},
	Examples: []string{
		"numamove                  # a line each second",
		"numamove 5 3 --columns +pages,+failed_pages  # three lines of five seconds each, with numbers of pages",
		"numamove --reason all --pid 1234  # all migrations in the context of one process",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Rounds: source.Rounds{Every: flags.Duration(time.Second)}, Reason: misplaced}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	reason, err := o.reason(env)
	if err != nil {
		return nil, err
	}
	plan := tool.Plan{
		Variables: map[string]any{"targ_reason": reason},
		Optional:  []string{"begin"},
		Settle:    []tool.Iterator{{Program: "settle", Map: "begins"}},
	}
	if o.Reason == misplaced && system.MemoryNodes("/") == 1 {
		plan.Note("this machine has one NUMA node: no page can be on the wrong one (--reason selects other migrations)")
	}
	return &source.Table[struct{}, counts, row]{
		Plan:    plan,
		Rounds:  o.Rounds,
		Columns: []string{"time", "migrations", "total_ns"},
		Fill: func(r *row, c *counts, _ time.Duration) {
			*r = row{c.Migrations, value.Nanoseconds(c.Ns), c.Pages, c.Failed}
		},
	}, nil
}

// reason returns the number of the selected reason in the running kernel, or -1 for all.
func (o *options) reason(env *tool.Env) (int32, error) {
	if o.Reason == "all" {
		return -1, nil
	}
	known, err := env.KernelEnum("migrate_reason")
	if errors.Is(err, ebpf.ErrNotSupported) {
		return 0, nil // only documentation is generated
	}
	if err != nil {
		return 0, err
	}
	var names []string
	for n, name := range known {
		name = strings.ToLower(strings.TrimPrefix(name, "MR_"))
		if name == o.Reason {
			return int32(n), nil
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return 0, fmt.Errorf("--reason: unknown reason %q; this kernel has: all, %s", o.Reason, strings.Join(names, ", "))
}
