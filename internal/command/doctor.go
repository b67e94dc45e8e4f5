package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/doctor"
	"github.com/corescope/corescope/internal/document"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
)

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	Tools  []string `pos:"tool..." help:"test only these tools (default: all that need no arguments)"`
	Output string   `flag:"output" arg:"FORMAT" help:"text or json (one object)"`
	BTF    string   `flag:"btf" arg:"FILE" help:"BTF of the kernel, if it has none itself; also CORESCOPE_BTF"`
	AnyBTF bool     `flag:"any-btf" help:"use the BTF of --btf even if the running kernel has its own BTF"`
}

// toolArguments returns the arguments with which the tools are tested.
func (o *doctorFlags) toolArguments() []string {
	var args []string
	if o.BTF != "" {
		args = append(args, "--btf", o.BTF)
	}
	if o.AnyBTF {
		args = append(args, "--any-btf")
	}
	return args
}

// report is the result of doctor.
type report struct {
	Runs    bool          `json:"runs" help:"whether all of these tools run on this machine"`
	Machine *doctor.Facts `json:"machine" help:"properties of the machine that tools depend on, as visible to this process"`
	Tools   []*tool.Trial `json:"tools" help:"the result of the test of each tool"`
}

// doctor reports the properties of the machine that tools depend on, and for each tool whether it
// runs.
func (c *Command) doctor(_ context.Context, args []string) error {
	o := doctorFlags{Output: "text", BTF: os.Getenv("CORESCOPE_BTF")}
	tools, err := c.parseDoctor(&o, args)
	if err != nil {
		return err
	}
	r := &report{Runs: true, Machine: doctor.Read("/", o.BTF)}
	code := exitCode(tool.ExitOK)
	for _, t := range tools {
		trial := t.Try(r.Machine, o.toolArguments()...)
		r.Tools = append(r.Tools, trial)
		r.Runs = r.Runs && trial.Runs
		code = cmp.Or(code, exitCode(trial.Code))
	}
	write := r.writeText
	if o.Output == "json" {
		write = r.writeJSON
	}
	if err := write(c.Out); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if code != tool.ExitOK {
		return code
	}
	return nil
}

// parseDoctor parses the arguments of doctor and returns the tools to test: by default all that run
// without arguments.
func (c *Command) parseDoctor(o *doctorFlags, args []string) ([]*tool.Tool, error) {
	set := flags.New("doctor")
	if err := set.Add(o, nil); err != nil {
		return nil, err
	}
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if o.Output != "text" && o.Output != "json" {
		return nil, fmt.Errorf("%w: --output %s: want text or json", flags.ErrUsage, o.Output)
	}
	if o.AnyBTF && o.BTF == "" {
		return nil, fmt.Errorf("%w: --any-btf needs --btf (or CORESCOPE_BTF)", flags.ErrUsage)
	}
	if len(o.Tools) == 0 {
		return slices.DeleteFunc(slices.Clone(c.Tools), (*tool.Tool).NeedsArguments), nil
	}
	var tools []*tool.Tool
	for _, name := range o.Tools {
		t, err := c.argument([]string{name})
		if err != nil {
			return nil, err
		}
		tools = append(tools, t)
	}
	return tools, nil
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// writeText writes a table of the machine's properties, a table of the tools, and then the
// problems.
func (r *report) writeText(w io.Writer) error {
	lines := r.Machine.Lines()
	err := tool.WriteTable(w, []string{"MACHINE", ""}, lines, func(l doctor.Line) []string {
		return []string{l.Name, mark(l)}
	})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	headers := []string{"TOOL", "RUNS", "HOOKS"}
	if err := tool.WriteTable(w, headers, r.toolRows(output.Width(w)), func(cells []string) []string { return cells }); err != nil {
		return err
	}
	for _, p := range r.problems(lines) {
		if _, err := fmt.Fprintf(w, "\n%s\n", p); err != nil {
			return err
		}
	}
	return nil
}

// toolRows returns the cells of the table of tools. On a terminal, the hooks of a tool are wrapped
// to its width. Otherwise width is 0 and a tool is one line, for other programs to parse.
func (r *report) toolRows(width int) [][]string {
	others := 0 // width of the other two columns, each followed by two spaces
	for _, t := range r.Tools {
		others = max(others, len(t.Name)+2+len("RUNS")+2)
	}
	var rows [][]string
	for _, t := range r.Tools {
		name, runs := t.Name, yesNo(t.Runs)
		for _, line := range wrap(attachPoints(t), width-others) {
			rows = append(rows, []string{name, runs, line})
			name, runs = "", ""
		}
	}
	return rows
}

// wrap joins the items with commas, in lines of at most width bytes. A line with a single item can
// be longer. If width is not positive, there is one line.
func wrap(items []string, width int) []string {
	lines := []string{""}
	for i, item := range items {
		if i < len(items)-1 {
			item += ","
		}
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = item
		case width > 0 && len(*last)+1+len(item) > width:
			lines = append(lines, item)
		default:
			*last += " " + item
		}
	}
	return lines
}

// mark returns the value of a line, with "(!)" appended if it has a problem.
func mark(l doctor.Line) string {
	if l.Problem != "" {
		return l.Value + " (!)"
	}
	return l.Value
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// attachPoints lists the attach point that the tool would use for each hook, or "HOOK: none".
func attachPoints(t *tool.Trial) []string {
	var hooks []string
	for _, e := range t.Hooks {
		none := e.Hook + ": none"
		if !slices.ContainsFunc(hooks, func(h string) bool { return strings.HasPrefix(h, e.Hook+": ") }) {
			hooks = append(hooks, none)
		}
		if e.Taken {
			hooks[slices.Index(hooks, none)] = e.Hook + ": " + e.Where
		}
	}
	return hooks
}

// problems lists each reason why tools do not run, with the names of all tools that it concerns,
// and then the other problems of the machine.
func (r *report) problems(lines []doctor.Line) []string {
	var listed, out []string
	for _, t := range r.Tools {
		if t.Runs || slices.Contains(listed, cmp.Or(t.Remedy, t.Error)) {
			continue
		}
		listed = append(listed, cmp.Or(t.Remedy, t.Error))
		text := describe(r.sameProblem(t))
		if t.Remedy != "" {
			text += "\n  " + t.Remedy
		}
		out = append(out, text)
	}
	for _, l := range lines {
		if l.Problem != "" && !slices.Contains(listed, l.Problem) {
			out = append(out, l.Name+": "+l.Value+"\n  "+l.Problem)
		}
	}
	return out
}

// sameProblem lists the tools that fail for the same reason as t, including t.
func (r *report) sameProblem(t *tool.Trial) []*tool.Trial {
	var same []*tool.Trial
	for _, other := range r.Tools {
		if !other.Runs && cmp.Or(other.Remedy, other.Error) == cmp.Or(t.Remedy, t.Error) {
			same = append(same, other)
		}
	}
	return same
}

// describe returns the names of tools with the same problem, and their error, or that of the first one if
// they differ, for example in the hook.
func describe(same []*tool.Trial) string {
	var names []string
	which := ""
	for _, t := range same {
		names = append(names, t.Name)
		if t.Error != same[0].Error {
			which = "the error of " + same[0].Name + " is: "
		}
	}
	return strings.Join(names, ", ") + ": " + which + same[0].Error
}

func (c *Command) schemaOfDoctor() error {
	schema, err := document.SchemaOf(report{}, "corescope doctor --output json",
		"Whether the tools run on this machine, and the properties of the machine that they depend on.")
	if err != nil {
		return err
	}
	_, err = c.Out.Write(schema)
	return err
}

func pageDoctor(p *manual.Page) {
	p.Section("DOCTOR")
	p.Text("doctor prints the properties of the machine that tools depend on: the kernel and its BTF, tracefs, lockdown, " +
		"the capabilities of this process, the settings of BPF and perf events, cgroups and container runtimes, limits. " +
		"Then it tests the given tools, by default all, as --explain does: it loads and attaches each attach type of " +
		"each hook, and removes it again. It prints the attach type that the tool would use. For a tool that does not " +
		"run, it prints the error message of the tool: the reason and what to do. It needs no privileges, but then it " +
		"reports what it could not test. --btf FILE and --any-btf have the same meaning as for tools. --output json " +
		"prints one object; corescope schema doctor prints its schema.")
}
