package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
)

// Manual returns the tool's manual page.
func (t *Tool) Manual() *manual.Page {
	p := manual.New("8", t.Summary, t.names()...)
	p.Section("SYNOPSIS")
	synopsis := ""
	for _, name := range append(t.names(), "corescope "+t.Name) {
		synopsis += usage(name+" [flags]", t.Flags) + "\n"
	}
	p.Code(synopsis)
	p.Section("DESCRIPTION")
	p.Text(t.Description)
	t.manualAliases(p)
	t.manualFlags(p)
	t.manualColumns(p)
	t.manualHooks(p)
	t.manualStacks(p)
	t.manualOutput(p)
	t.manualUse(p)
	t.manualNeeds(p)
	manualFiles(p)
	t.manualPeers(p)
	p.Section("SEE ALSO")
	p.Text("corescope(1), bpf(2), capabilities(7)")
	return p
}

func (t *Tool) manualAliases(p *manual.Page) {
	if len(t.Aliases) == 0 {
		return
	}
	p.Text("The tool has these aliases, which set some of its flags:")
	for _, a := range t.Aliases {
		p.Item(a.Name, "", a.StandsFor)
	}
}

func (t *Tool) manualFlags(p *manual.Page) {
	p.Section("OPTIONS")
	for _, g := range t.Flags {
		p.Subsection(g.Title)
		for _, flag := range g.Flags {
			if flag.Position == "" {
				p.Item(strings.TrimSpace(strings.TrimSuffix(flagText(flag), flag.Arg)), flag.Arg, flagHelp(flag))
			} else {
				p.Item("", flag.Position, flagHelp(flag))
			}
		}
	}
}

func (t *Tool) manualColumns(p *manual.Page) {
	p.Section("COLUMNS")
	if t.Kind == output.KindHistogram {
		t.manualKeys(p)
	} else {
		p.Text(t.textColumns() + " JSON and CSV have all columns except those marked \"on demand\", which --columns +NAME adds. " +
			"JSON, CSV, --columns and --filter use the keys below, text the headers.")
	}
	for _, c := range t.Columns {
		p.Item(c.Key, headerOf(c), columnHelp(c))
	}
}

// textColumns describes the columns in text output.
func (t *Tool) textColumns() string {
	if len(t.Text) == 0 {
		return "Text shows stack traces instead of columns."
	}
	return "Text shows the columns " + strings.Join(t.Text, ", ") + " by default."
}

func (t *Tool) manualKeys(p *manual.Page) {
	if len(t.Keys) > 0 {
		p.Text("Histograms can be grouped by these keys, which are members of the object key in JSON:")
	}
	for _, c := range t.Keys {
		p.Item(c.Key, headerOf(c), columnHelp(c))
	}
	p.Text("Statistics of each histogram, which --filter can use too:")
}

func headerOf(c column.Column) string {
	if strings.EqualFold(c.Header, c.Key) {
		return ""
	}
	return c.Header
}

func columnHelp(c column.Column) string {
	help := c.Help
	switch len(c.Hooks) {
	case 0:
	case 1:
		help += "; n/a (null in JSON) if the kernel does not support the hook " + c.Hooks[0]
	default:
		help += "; n/a (null in JSON) unless the kernel supports the hooks " + strings.Join(c.Hooks, ", ")
	}
	if c.Extra {
		help += "; on demand"
	}
	return help
}

func (t *Tool) manualHooks(p *manual.Page) {
	p.Section("HOOKS")
	if len(t.Hooks) > 0 {
		t.manualAttachTypes(p)
	}
	if len(t.Iterators) == 0 {
		return
	}
	p.Subsection("iterators")
	p.Text("Existing objects are listed by iterators: programs that the kernel runs once for each object of a type.")
	for _, section := range t.Iterators {
		p.Item(section, "", "needs "+probe.Needs(section))
	}
}

func (t *Tool) manualAttachTypes(p *manual.Page) {
	p.Text("Each hook uses the first of its attach types that the running kernel supports. corescope tries them in the " +
		"order below; it never compares kernel versions. --explain prints the attach type of each hook and why the " +
		"ones before it were not used, --hook HOOK=KIND forces one. All need BTF, the description of the kernel's " +
		"types: the kernel's own or the file of --btf.")
	for _, h := range t.Hooks {
		p.Subsection(h.Name)
		p.Text(t.hookText(h.Name))
		for _, v := range h.Variants {
			p.Item(v.Kind, "", t.variantText(v))
		}
	}
}

// variantText describes where an attach type attaches and what it needs from the kernel.
func (t *Tool) variantText(v probe.Variant) string {
	return v.String() + "; needs " + cmp.Or(v.Needs(), "nothing else")
}

// hookText describes when the tool runs without the hook, if it can.
func (t *Tool) hookText(name string) string {
	for _, s := range t.StandIns {
		if s.Hook == name {
			return "Used only if the kernel does not support the hook " + s.For + ": " + s.Means + "."
		}
	}
	switch {
	case slices.Contains(t.Optional, name):
		return "Optional: the tool also runs without this hook, but then reports less."
	case slices.Contains(t.Without, name):
		return "Used only with options that need it."
	}
	return ""
}

func (t *Tool) manualUse(p *manual.Page) {
	p.Section("EXAMPLES")
	for _, e := range t.Examples {
		command, purpose, _ := strings.Cut(e, "# ")
		p.Item(strings.TrimSpace(command), "", purpose)
	}
	p.Section("EXIT STATUS")
	for _, e := range t.ExitCodes {
		p.Item(fmt.Sprint(e.Code), "", e.Meaning)
	}
}

func (t *Tool) manualNeeds(p *manual.Page) {
	if t.Overhead != "" {
		p.Section("OVERHEAD")
		p.Text(t.Overhead)
	}
	p.Section("PRIVILEGES")
	for _, text := range t.Privileges {
		p.Text(text)
	}
}

func (t *Tool) manualPeers(p *manual.Page) {
	if len(t.Peers) == 0 {
		return
	}
	p.Section("DIFFERENCES")
	p.Text("Differences from the tools of this name in BCC and libbpf-tools:")
	for _, peer := range t.Peers {
		p.Bullet(peer)
	}
}
