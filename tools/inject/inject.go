// Package inject makes functions of the kernel fail.
package inject

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/source"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

//go:generate ../../scripts/bpf2go.sh inject.bpf.c

type options struct {
	Mode        string  `pos:"mode" of:",kmalloc,bio,alloc_page" help:"what fails: kmalloc (allocations of the slab allocator), bio (block I/O requests), alloc_page (allocations of pages)"`
	Spec        string  `pos:"spec" help:"call chain with conditions, innermost function first: 'mount_subtree() => btrfs_mount()', '(true) => sys_mount()'"`
	Probability float64 `flag:"probability,P" arg:"SHARE" min:"0" max:"1" help:"share of the matching calls that fail, at random: 0.01 is one in a hundred"`
	Count       uint64  `flag:"count,c" arg:"N" min:"1" bpf:"targ_count" help:"stop failing calls after this number; the run goes on"`
	DryRun      bool    `flag:"dry-run" help:"show the calls that would fail, and let them succeed; needs no CONFIG_BPF_KPROBE_OVERRIDE"`
	AllTasks    bool    `flag:"all-tasks" help:"permit a spec without a function also without a task filter: such calls fail on the whole machine"`
	Include     headers `flag:"include,I" arg:"HEADER" help:"no effect, for compatibility with BCC: types come from the kernel's BTF; can be repeated"`
}

// headers are names of C headers. They are not read.
type headers []string

// UnmarshalText appends a name.
func (h *headers) UnmarshalText(text []byte) error {
	*h = append(*h, string(text))
	return nil
}

// String returns the default value.
func (h *headers) String() string { return "" }

type event struct{ value.Task }

type row struct {
	event
	Mode     string `json:"mode" col:"MODE,width=10" help:"what failed: kmalloc, bio or alloc_page"`
	Func     string `json:"func" col:"FUNC,width=22" help:"function that returned the error instead of running"`
	Return   string `json:"return" col:"RETURN,width=8" help:"what it returned: the name of the errno, or true for alloc_page"`
	Injected bool   `json:"injected" col:"INJECTED,width=8" help:"false with --dry-run: the call was not changed"`
}

// Tool is the definition of inject.
var Tool = tool.Define(tool.Spec{
	Name:     "inject",
	Category: "function",
	Summary:  "Inject faults into the kernel: fail kmalloc, block I/O or page allocation in a call chain",
	Description: `Changes the system while it runs: makes allocations or block I/O requests of the kernel fail, to test how the kernel and programs handle that. Code that handles errors badly can crash the kernel or damage data: use a test machine. A message states what will fail, and for whom, before anything does. When the tool ends, also if it is killed, nothing fails any more; what failed stays failed.

The mode selects the function that fails and the error: kmalloc fails should_failslab with ENOMEM, bio fails should_fail_bio with EIO, alloc_page makes should_fail_alloc_page return true.

The spec limits which calls fail. It lists functions of the kernel that must be in progress in the thread, the innermost first, separated by =>. Other functions can be between them. Each can have conditions on its arguments in a second pair of parentheses; arguments have the names of the kernel's BTF, and signatures of BCC are accepted. A first part without a function is the condition on the arguments of the failing function: s and gfpflags for kmalloc, bio for bio, gfp_mask and order for alloc_page. sys_NAME and SyS_NAME stand for the function of a system call; its arguments are arg1 and so on.

Returns of the functions of the chain are observed, and return addresses on the stack show whether a call is in progress. The kernel misses returns if too many threads are in the same function at once (more than ten, or two per CPU). Nothing fails in those calls; they count as lost (unobserved).

Only calls of threads that the task filter selects fail, in the context of that thread. Calls in interrupts, and by the tool itself, do not. A spec without a function needs a task filter or --all-tasks. With -c, up to one more call per CPU can fail if several CPUs reach the number at the same moment.

Each failed call has a row. --dry-run shows the rows without failing anything; use it first.

A kernel needs CONFIG_BPF_KPROBE_OVERRIDE, which few distributions set, and CONFIG_KPROBES. Since Linux 6.11, kmalloc also needs CONFIG_FAILSLAB and alloc_page CONFIG_FAIL_PAGE_ALLOC: otherwise the function does not exist, also for --dry-run. Without CONFIG_FUNCTION_ERROR_INJECTION, compilers can inline should_fail_bio. Functions of the chain must not be inlined.`,
	Peers: []string{
		"Conditions have the syntax of trace(8): C expressions over arguments, members and constants, and STRCMP. Compound statements of C, calls of functions, and variables of BCC's generated program cannot be expressed: a condition on the disk of a bio is bio->bi_bdev->bd_dev == 0xfe00010, not a statement with local variables.",
		"-I has no effect. -v prints the attach points, not the source of a program.",
		"Each failed call has a row; BCC's inject shows nothing.",
		"The task filter, --dry-run and --duration exist here only. Without a task filter, a spec needs at least one function, or --all-tasks.",
		"If a function of the chain calls itself, the chain is in progress until the outer call returns.",
	},
	Examples: []string{
		"inject --dry-run -p 1234 kmalloc 'SyS_mount()'        # which allocations would fail in mount(2) of one process",
		"inject -p 1234 kmalloc 'mount_subtree() => btrfs_mount()'  # fail mounts of btrfs by one process",
		"inject -P 0.01 -c 10 --comm dd bio '(true)'           # fail one in a hundred requests of dd, at most ten",
		"inject --cgroup /test alloc_page '(order == 2) => do_sys_openat2()'  # page allocations of this order in open(2)",
	},
	Object: loadBpf,
	Tasks:  true,
	Shorts: map[string]string{"pid": "p"},
}, options{Probability: 1}, build)

func build(o *options, env *tool.Env) (tool.Source, error) {
	m := modes[o.Mode]
	e := &source.Events[row]{
		BufferBytes: 1 << 20,
		Columns:     []string{"time", "pid", "comm", "mode", "func", "return", "injected"},
		Row:         row{Mode: o.Mode, Func: m.function, Return: m.name, Injected: !o.DryRun},
	}
	e.Resolve = func(p *tool.Plan, k *tool.Kernel) error {
		if o.Mode == "" || o.Spec == "" {
			return flags.Usage(errors.New("missing mode or spec, such as kmalloc 'sys_mount()'"))
		}
		c, err := o.resolve(env, k, p.Note)
		if err != nil {
			return err
		}
		if len(c.names) == 0 && !o.AllTasks && !env.HasTaskFilter() {
			return flags.Usage(fmt.Errorf("the spec has no function, so that %s fails on the whole machine: add a function, a task filter such as --pid, or --all-tasks", o.Mode))
		}
		if err := o.announce(p.Note, m, c, env.HasTaskFilter()); err != nil {
			return err
		}
		own, err := env.OwnPID()
		if err != nil {
			return err
		}
		returns, size, err := c.stack(m.function, p.Note)
		if err != nil {
			return err
		}
		p.Instances = c.instances
		p.Variables = map[string]any{
			"targ_nr_levels": uint32(len(c.names)), "targ_levels": c.levels, "targ_return": m.result, "targ_dry_run": o.DryRun,
			"targ_share": o.share(), "targ_not_pid": own, "targ_trampolines": returns, "targ_stack_bytes": size,
		}
		return nil
	}
	return e, nil
}

// share returns the probability in units of 2^-32, 0 for 1.
func (o *options) share() uint32 {
	if o.Probability >= 1 {
		return 0
	}
	return max(1, uint32(o.Probability*(1<<32)))
}

// Check returns an error for a probability that would never fail a call.
func (o *options) Check() error {
	if o.Probability <= 0 {
		return errors.New("--probability 0: no call would fail; use --dry-run")
	}
	return nil
}

// announce states what will fail. It returns an error if the kernel does not permit it.
func (o *options) announce(note func(string), m mode, c *chain, filtered bool) error {
	whose := "threads of the whole machine"
	if filtered {
		whose = "the threads that the task filter selects"
	}
	if o.DryRun {
		note("dry run: shows the calls of " + m.function + " that would fail, and changes nothing")
		return nil
	}
	if err := canOverride(); err != nil {
		return fmt.Errorf("make functions fail: %w: %w (needs CONFIG_BPF_KPROBE_OVERRIDE and CONFIG_KPROBES)", tool.ErrUnsupported, err)
	}
	note(fmt.Sprintf("this changes the system until it ends: %s returns %s in %s%s", m.function, m.name, whose, c.within()))
	return nil
}

// canOverride loads a program that replaces the result of a function, without attaching it.
func canOverride() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R2, 0), asm.FnOverrideReturn.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return err
	}
	return p.Close()
}
