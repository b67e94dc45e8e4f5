package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/document"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/prove"
	"github.com/corescope/corescope/internal/tool"
)

// proveFlags are the flags of prove.
type proveFlags struct {
	Tools  []string `pos:"tool..." help:"prove only these tools (default: all)"`
	Output string   `flag:"output" arg:"FORMAT" help:"text, json (one object) or tap (Test Anything Protocol)"`
	JSON   bool     `flag:"json" sets:"output=json" help:"same as --output json"`
	TAP    bool     `flag:"tap" sets:"output=tap" help:"same as --output tap"`
	DryRun bool     `flag:"dry-run" help:"print what would run, and exit"`
	Stats  bool     `flag:"stats" help:"check the conservation laws of the runs too: durations, entries and exits, and that rows and lost events are what the kernel counted"`
	All    bool     `flag:"verbose,v" help:"print the result of each column"`
}

// prove compares what tools show with what workloads of its own did.
func (c *Command) prove(ctx context.Context, args []string) error {
	o := proveFlags{Output: "text"}
	set := flags.New("prove")
	if err := set.Add(&o, nil); err != nil {
		return err
	}
	if err := set.Parse(args); errors.Is(err, flags.ErrHelp) {
		return describeProve(set).Help(c.Out)
	} else if err != nil {
		return err
	}
	names, err := c.toolsToProve(&o)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, which needs /proc to be mounted: %w", err)
	}
	run := prove.Run{
		Prover: prove.Prover{Program: program, Stats: o.Stats}, Tools: names, Format: o.Output, Verbose: o.All, DryRun: o.DryRun, Kernel: kernelRelease(), Out: c.Out, Err: c.Err,
	}
	ok, err := run.Do(ctx)
	switch {
	case errors.Is(err, prove.ErrNotPermitted):
		fmt.Fprintf(c.Err, "corescope: prove: %v\n", err)
		return exitCode(tool.ExitNotPermitted)
	case errors.Is(err, prove.ErrNothingProved):
		fmt.Fprintf(c.Err, "corescope: prove: %v\n", err)
		return exitCode(tool.ExitUnsupported)
	case err == nil && !ok:
		return exitCode(tool.ExitFailure)
	}
	return err
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// describeProve describes the flags of prove.
func describeProve(set *flags.Set) *document.Tool {
	return &document.Tool{
		Name: "corescope prove", Summary: "Compare the tools with workloads whose events are known, on this machine",
		Flags: []document.FlagGroup{{Title: "Flags", Flags: set.All()}},
		Examples: []string{
			"corescope prove                # all tools",
			"corescope prove -v opensnoop   # one tool, with the result of each column",
			"corescope prove --stats        # with the conservation laws of each run",
			"corescope prove --dry-run      # what would run",
		},
	}
}

// toolsToProve returns the names of the tools, each once.
func (c *Command) toolsToProve(o *proveFlags) ([]string, error) {
	if o.Output != "text" && o.Output != "json" && o.Output != "tap" {
		return nil, fmt.Errorf("%w: --output %s: want text, json or tap", flags.ErrUsage, o.Output)
	}
	var names []string
	for _, name := range o.Tools {
		t, err := c.argument([]string{name})
		if err != nil {
			return nil, err
		}
		if name := t.Self().Name; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		for _, t := range c.Tools {
			names = append(names, t.Name)
		}
	}
	return names, nil
}

// proveWorkload performs a workload for prove.
func (c *Command) proveWorkload(_ context.Context, args []string) error {
	return prove.Work(args, os.Stdin, c.Out)
}

func (c *Command) schemaOfProve() error {
	schema, err := document.SchemaOf(prove.Report{}, "corescope prove --output json",
		"Which columns of the tools agree with a workload whose events are known.")
	if err != nil {
		return err
	}
	_, err = c.Out.Write(schema)
	return err
}

func pageProve(p *manual.Page) {
	p.Section("PROVE")
	p.Text(strings.Join([]string{
		"prove shows that the tools are right on this machine, or where they are wrong. For each tool it starts a process",
		"that performs a small workload and notes what it did: paths, sizes, ports, times measured around each call. Meanwhile",
		"the tool observes it. Then prove compares the rows of the tool with these notes, and for some columns with counters of",
		"the kernel. The result of each column is proved, contradicted (with both values), or not provable here (with the",
		"reason). --dry-run prints what would run. The workloads run in processes, cgroups, directories and network namespaces",
		"of their own, and nothing of them is left. The exit status is 1 if a column is contradicted or the run is interrupted,",
		"3 if tools lack privileges, and 4 if nothing was proved.",
	}, " "))
	set := flags.New("prove")
	if err := set.Add(&proveFlags{}, nil); err == nil {
		for _, f := range set.All() {
			p.Item("--"+f.Long, f.Arg, f.Help)
		}
	}
}
