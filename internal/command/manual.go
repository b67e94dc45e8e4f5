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

// man shows a tool's manual page, or the program's own.
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

// show lets man(1) show the page, with its pager, and shows the plain text itself
// where there is none.
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

// page is the program's own manual page.
func (c *Command) page() *manual.Page {
	p := manual.New("1", "tools that observe a Linux system by eBPF", "corescope")
	p.Section("SYNOPSIS")
	synopsis := "TOOL [flags]\ncorescope TOOL [flags]\n"
	for _, v := range verbs() {
		synopsis += strings.TrimSpace("corescope "+v.name+" "+v.args) + "\n"
	}
	p.Code(synopsis)
	p.Section("DESCRIPTION")
	p.Text("One program holds all the tools. It is the tool that it is called by, through a symbolic link of that name, " +
		"which may have a prefix or a suffix (bpf-execsnoop, execsnoop-bpfcc), or else the one that its first argument names. " +
		"The programs that run in the kernel are compiled; they are fitted to the kernel as they are loaded.")
	p.Section("VERBS")
	for _, v := range verbs() {
		p.Item(v.name, v.args, v.summary)
	}
	c.pageTools(p)
	pageDoctor(p)
	p.Section("EXIT STATUS")
	for _, e := range tool.ExitCodes() {
		p.Item(strconv.Itoa(e.Code), "", e.Meaning)
	}
	p.Text("doctor ends with 0 when all tools that it was asked for run, else with what the first one that does not would end with.")
	return p
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

// schema prints the JSON Schema of what a tool prints, or of what it prints with
// the flags behind it.
func (c *Command) schema(_ context.Context, args []string) error {
	if slices.Equal(args, []string{"doctor"}) {
		return c.schemaOfDoctor()
	}
	t, err := c.argument(args[:min(1, len(args))])
	if err != nil {
		return err
	}
	facts, err := t.Facts(args[1:]...)
	if err != nil {
		return fmt.Errorf("describe %s: %w", t.Name, err)
	}
	schema, err := facts.Schema()
	if err != nil {
		return err
	}
	_, err = c.Out.Write(schema)
	return err
}
