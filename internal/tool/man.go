package tool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/probe"
)

// Manual returns the tool's manual page.
func (f *Facts) Manual() *manual.Page {
	p := manual.New("8", f.Summary, f.Names()...)
	p.Section("SYNOPSIS")
	synopsis := ""
	for _, name := range append(f.Names(), "corescope "+f.Name) {
		synopsis += usage(name+" [flags]", f.Flags) + "\n"
	}
	p.Code(synopsis)
	p.Section("DESCRIPTION")
	p.Text(f.Description)
	f.manualAliases(p)
	f.manualFlags(p)
	f.manualColumns(p)
	f.manualHooks(p)
	f.manualStacks(p)
	f.manualOutput(p)
	f.manualUse(p)
	f.manualNeeds(p)
	manualFiles(p)
	f.manualPeers(p)
	p.Section("SEE ALSO")
	p.Text("corescope(1), bpf(2), capabilities(7)")
	return p
}

func (f *Facts) manualAliases(p *manual.Page) {
	if len(f.Also) == 0 {
		return
	}
	p.Text("By another name it is the tool with other defaults:")
	for _, a := range f.Also {
		p.Item(a.Name, "", f.As(a.Name).StandsFor())
	}
}

func (f *Facts) manualFlags(p *manual.Page) {
	p.Section("OPTIONS")
	for _, g := range f.Flags {
		p.Subsection(g.Title)
		for _, flag := range g.Flags {
			if flag.Position == "" {
				p.Item(strings.TrimSpace(strings.TrimSuffix(flagText(flag), flag.Arg)), flag.Arg, flagHelp(flag))
			} else {
				p.Item("", flag.Position, flag.Help)
			}
		}
	}
}

func (f *Facts) manualColumns(p *manual.Page) {
	p.Section("COLUMNS")
	if f.Kind == kindHistogram {
		f.manualKeys(p)
	} else {
		p.Text(fmt.Sprintf("In text %s are shown, if no option changes that; in JSON and CSV all but those on demand, which --columns +NAME adds. "+
			"A column has its key in JSON, CSV, --columns and --filter, and its header in text.", strings.Join(f.Text, ", ")))
	}
	for _, c := range f.Columns {
		p.Item(c.Key, headerOf(c), columnHelp(c))
	}
}

func (f *Facts) manualKeys(p *manual.Page) {
	if len(f.Keys) > 0 {
		p.Text("Histograms can be told apart by these, which are in the object key of JSON:")
	}
	for _, c := range f.Keys {
		p.Item(c.Key, headerOf(c), columnHelp(c))
	}
	p.Text("Each has these, which --filter can ask for as well:")
}

func headerOf(c column.Column) string {
	if strings.EqualFold(c.Header, c.Key) {
		return ""
	}
	return c.Header
}

func columnHelp(c column.Column) string {
	help := c.Help
	if len(c.Hooks) > 0 {
		help += "; n/a, in JSON null, where there is no way to " + strings.Join(c.Hooks, ", ")
	}
	if c.Extra {
		help += "; on demand"
	}
	return help
}

func (f *Facts) manualHooks(p *manual.Page) {
	p.Section("HOOKS")
	if len(f.Hooks) > 0 {
		f.manualWays(p)
	}
	if len(f.Iterators) == 0 {
		return
	}
	p.Subsection("iterators")
	p.Text("What is there already is listed by programs that the kernel calls for each thing of a kind.")
	for _, section := range f.Iterators {
		p.Item(section, "", "needs "+probe.Needs(section))
	}
}

func (f *Facts) manualWays(p *manual.Page) {
	p.Text("Each hook is taken in the first of its ways that this kernel allows; it is tried, and no version is looked at. " +
		"--explain says which that is here and why not a better one, --hook HOOK=KIND takes another. " +
		"All need a description of the kernel's types, its own BTF or that of --btf.")
	for _, h := range f.Hooks {
		p.Subsection(h.Name)
		p.Text(f.hookText(h.Name))
		for _, v := range h.Variants {
			p.Item(v.Kind, "", f.wayText(v))
		}
	}
}

// wayText says where a variant attaches and what it needs.
func (f *Facts) wayText(v probe.Variant) string {
	return v.String() + "; needs " + cmp.Or(v.Needs(), "nothing more")
}

// hookText says when the tool does without a hook, if ever.
func (f *Facts) hookText(name string) string {
	for _, s := range f.StandIns {
		if s.Hook == name {
			return "Only where there is no way to the hook " + s.For + ": " + s.Means + "."
		}
	}
	switch {
	case slices.Contains(f.Optional, name):
		return "The tool sees less where there is no way to this hook."
	case slices.Contains(f.Without, name):
		return "Only with the options that ask for it."
	}
	return ""
}

func (f *Facts) manualUse(p *manual.Page) {
	p.Section("EXAMPLES")
	for _, e := range f.Examples {
		command, what, _ := strings.Cut(e, "# ")
		p.Item(strings.TrimSpace(command), "", what)
	}
	p.Section("EXIT STATUS")
	for _, e := range ExitCodes() {
		p.Item(fmt.Sprint(e.Code), "", e.Meaning)
	}
}

func (f *Facts) manualNeeds(p *manual.Page) {
	if f.Overhead != "" {
		p.Section("OVERHEAD")
		p.Text(f.Overhead)
	}
	p.Section("PRIVILEGES")
	for _, text := range f.privileges() {
		p.Text(text)
	}
}

func (f *Facts) manualPeers(p *manual.Page) {
	if len(f.Peers) == 0 {
		return
	}
	p.Section("DIFFERENCES")
	p.Text("From the tools of this name in BCC and libbpf-tools:")
	for _, peer := range f.Peers {
		p.Bullet(peer)
	}
}
