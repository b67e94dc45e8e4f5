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
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/tool"
)

// checkup are the flags of doctor.
type checkup struct {
	Tools  []string `pos:"tool..." help:"only these tools; else all that need no arguments, such as a function to look at"`
	Output string   `flag:"output" arg:"FORMAT" help:"text or json (one object)"`
	BTF    string   `flag:"btf" arg:"FILE" help:"BTF of the kernel, where it has none; also CORESCOPE_BTF"`
}

// report is what doctor finds.
type report struct {
	Runs    bool          `json:"runs" help:"all of these tools run here"`
	Machine *doctor.Facts `json:"machine" help:"facts that decide it, as this process sees them"`
	Tools   []*tool.Trial `json:"tools" help:"the tools, and what became of each as it was tried"`
}

// doctor says of the machine what tools need, and of each tool whether it runs.
func (c *Command) doctor(_ context.Context, args []string) error {
	o := checkup{Output: "text", BTF: os.Getenv("CORESCOPE_BTF")}
	tools, err := c.readCheckup(&o, args)
	if err != nil {
		return err
	}
	r := &report{Runs: true, Machine: doctor.Read("/", o.BTF)}
	code := exitCode(tool.ExitOK)
	for _, t := range tools {
		trial := t.Try(r.Machine, o.BTF)
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

// readCheckup returns the tools that are meant: if none is named, all that run without
// arguments.
func (c *Command) readCheckup(o *checkup, args []string) ([]*tool.Tool, error) {
	set := flags.New("doctor")
	if err := set.Add(o, nil); err != nil {
		return nil, err
	}
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if o.Output != "text" && o.Output != "json" {
		return nil, fmt.Errorf("%w: --output %s: it is text or json", flags.ErrUsage, o.Output)
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

// writeText writes a table of the facts, one of the tools, and last the problems.
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
	err = tool.WriteTable(w, []string{"TOOL", "RUNS", "HOOKS"}, r.Tools, func(t *tool.Trial) []string {
		return []string{t.Name, yesNo(t.Runs), strings.Join(taken(t), ", ")}
	})
	if err != nil {
		return err
	}
	for _, p := range r.problems(lines) {
		if _, err := fmt.Fprintf(w, "\n%s\n", p); err != nil {
			return err
		}
	}
	return nil
}

// mark is a fact with a mark where there is more to say of it.
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

// taken lists the ways that the tool would take, and for a hook without any "HOOK: none".
func taken(t *tool.Trial) []string {
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

// problems are one for all tools that have the same, and those of the machine that no
// tool has met.
func (r *report) problems(lines []doctor.Line) []string {
	var said, out []string
	for _, t := range r.Tools {
		if t.Runs || slices.Contains(said, cmp.Or(t.Remedy, t.Error)) {
			continue
		}
		said = append(said, cmp.Or(t.Remedy, t.Error))
		text := strings.Join(r.alike(t), ", ") + ": " + t.Error
		if t.Remedy != "" {
			text += "\n  " + t.Remedy
		}
		out = append(out, text)
	}
	for _, l := range lines {
		if l.Problem != "" && !slices.Contains(said, l.Problem) {
			out = append(out, l.Name+": "+l.Value+"\n  "+l.Problem)
		}
	}
	return out
}

// alike lists the tools that fail for the same reason.
func (r *report) alike(t *tool.Trial) []string {
	var names []string
	for _, other := range r.Tools {
		if !other.Runs && cmp.Or(other.Remedy, other.Error) == cmp.Or(t.Remedy, t.Error) {
			names = append(names, other.Name)
		}
	}
	return names
}

func (c *Command) schemaOfDoctor() error {
	schema, err := tool.SchemaOf(report{}, "corescope doctor --output json",
		"Whether the tools run on this machine, and the facts that decide it.")
	if err != nil {
		return err
	}
	_, err = c.Out.Write(schema)
	return err
}

func pageDoctor(p *manual.Page) {
	p.Section("DOCTOR")
	p.Text("doctor reads the facts that decide whether tools run here: the kernel and its types, tracefs, lockdown, what this process may do, " +
		"the settings of BPF and perf events, cgroups and container runtimes, limits. Then it tries each tool, or those that are named, as --explain does: " +
		"every way to every hook is loaded and attached, and nothing stays. It says which way is taken, and of a tool that does not run why, " +
		"and what can be done: the same that the tool itself says as it fails. An ordinary user may run it, and is told what it could not see. " +
		"--btf FILE is as for the tools; --output json is one object, of which corescope schema doctor prints the schema.")
}
