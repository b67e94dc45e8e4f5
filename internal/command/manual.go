package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/manual"
	"github.com/corescope/corescope/internal/tool"
)

// man shows the manual page of a tool or of corescope.
func (c *Command) man(ctx context.Context, args []string) error {
	page := c.page()
	if len(args) > 0 && args[0] != "corescope" {
		t, err := c.argument(args)
		if err != nil {
			return err
		}
		facts, err := t.Self().Facts()
		if err != nil {
			return err
		}
		page = facts.Manual()
	}
	if !isTerminal(c.Out) {
		_, err := io.WriteString(c.Out, page.Roff())
		return err
	}
	return c.show(ctx, page)
}

// show displays the page with man(1) and its pager, or writes plain text if man is not installed.
func (c *Command) show(ctx context.Context, page *manual.Page) error {
	man := exec.CommandContext(ctx, "man", "-l", "-")
	man.Stdin, man.Stdout, man.Stderr = strings.NewReader(page.Roff()), c.Out, c.Err
	err := man.Run()
	if errors.Is(err, exec.ErrNotFound) {
		_, err = io.WriteString(c.Out, page.String())
	}
	return err
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// page returns the manual page of corescope.
func (c *Command) page() *manual.Page {
	p := manual.New("1", "eBPF tools that observe Linux systems", "corescope")
	p.Section("SYNOPSIS")
	synopsis := "TOOL [flags]\ncorescope TOOL [flags]\ncorescope --host HOST,... TOOL [flags]\n"
	for _, v := range verbs() {
		synopsis += strings.TrimSpace("corescope "+v.name+" "+v.args) + "\n"
	}
	p.Code(synopsis)
	p.Section("DESCRIPTION")
	p.Text("One binary contains all tools. It runs the tool whose name it is called by, through a symbolic link, which can " +
		"have a prefix or a suffix (bpf-execsnoop, execsnoop-bpfcc), or the tool that its first argument names. " +
		"The BPF programs are precompiled, and adapted to the types of the running kernel when they are loaded (CO-RE).")
	p.Text("The long name of a flag can be abbreviated as long as it is unambiguous (--dur for --duration), and can be " +
		"written with underscores.")
	p.Section("VERBS")
	for _, v := range verbs() {
		p.Item(v.name, v.args, v.summary)
	}
	pageHosts(p)
	c.pageTools(p)
	pageDoctor(p)
	pageProve(p)
	p.Section("LOST EVENTS")
	p.Text("Events that happened at a hook and are missing from the output are counted by loss reason. Tools report them on " +
		"standard error while they run, and in the summary: lost is their sum, reasons has the number of each. With " +
		"--strict a tool that has lost events exits with 5.")
	for _, r := range tool.LossReasons() {
		p.Item(r.Name, "", r.Meaning)
	}
	p.Section("EXIT STATUS")
	for _, e := range tool.ExitCodes() {
		p.Item(strconv.Itoa(e.Code), "", e.Meaning)
	}
	p.Text("doctor exits with 0 if all tested tools run, otherwise with the exit status of the first tool that does not.")
	return p
}

func pageHosts(p *manual.Page) {
	p.Section("SEVERAL HOSTS")
	p.Text("With --host a,b the tool runs on each of these hosts, by ssh(1), which must log in without a password; for " +
		"users other than root with sudo(8) that asks for none. The output is merged by the time of its rows, as the clock " +
		"of each host has it: text and CSV get a first column with the host, JSON objects a member host. Rows that arrive " +
		"more than half a second after later ones of other hosts are not sorted any more.")
	p.Text("A host that does not have this version of the program gets a copy in ~/.cache/corescope. It must have the same " +
		"architecture. Messages have the name of the host. A host that fails is reported with the reason, and the others " +
		"continue; the exit status is the greatest of all hosts, at least 1 if one failed. SIGINT stops the tool on all hosts; " +
		"each writes its summary.")
	p.Item("CORESCOPE_SSH", "", "environment variable with the ssh command and its options: ssh -F FILE")
}

func (c *Command) pageTools(p *manual.Page) {
	p.Section("TOOLS")
	category := ""
	for _, t := range c.sorted() {
		if t.Category != category {
			category = t.Category
			p.Subsection(category)
		}
		p.Item(t.Name+"(8)", "", t.Summary)
	}
}

// schema prints the JSON Schema of a tool's output: with the given flags, or with any.
func (c *Command) schema(_ context.Context, args []string) error {
	if slices.Equal(args, []string{"doctor"}) {
		return c.schemaOfDoctor()
	}
	if slices.Equal(args, []string{"prove"}) {
		return c.schemaOfProve()
	}
	t, err := c.argument(args[:min(1, len(args))])
	if err != nil {
		return err
	}
	schema, err := schemaOf(t, args[1:])
	if err != nil {
		return err
	}
	_, err = c.Out.Write(schema)
	return err
}

func schemaOf(t *tool.Tool, args []string) ([]byte, error) {
	if len(args) == 0 {
		return t.Schema()
	}
	facts, err := t.Facts(args...)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", t.Name, err)
	}
	return facts.Schema()
}
