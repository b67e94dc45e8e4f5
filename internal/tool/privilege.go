package tool

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// Needs are the capabilities that every run of the tool needs.
func (t *Tool) Needs() system.Capabilities {
	return system.Set(system.CapBPF, system.CapPerfmon) | system.Set(t.Capabilities...)
}

// fileCapabilities are what it takes to look into the files that processes map, which a
// tool of user space does as long as it runs.
func fileCapabilities() system.Capabilities {
	return system.Set(system.CapSysPtrace, system.CapCheckpointRestore, system.CapDACReadSearch)
}

// keep are the capabilities that are of use when all is attached.
func (t *Tool) keep(p *Plan) system.Capabilities {
	keep := system.Set(p.Keep...)
	if len(p.Files) > 0 {
		keep |= t.Needs() | fileCapabilities()
	}
	return keep
}

// extra is a capability that runs need only with some options.
type extra struct {
	capability system.Capability
	option     string
	given      func(*common) bool
	what       string // what it is for, and when it can be done without
}

func extras() []extra {
	return []extra{
		{system.CapSysAdmin, "--stats", func(c *common) bool { return c.Stats }, "to have the kernel measure the programs"},
		{system.CapIPCLock, "--perf-buffer", func(c *common) bool { return c.Perf },
			"where the buffers are larger than kernel.perf_event_mlock_kb and the memory lock limit allow"},
	}
}

// needs are the capabilities that this command line needs.
func (l *line) needs() system.Capabilities {
	needs := l.tool.Needs()
	for _, e := range extras() {
		if e.given(&l.common) {
			needs |= system.Set(e.capability)
		}
	}
	return needs
}

// confine gives up all capabilities that are not used from here on, if the process is
// this run's own. It is called when all is attached and open.
func (s *session) confine() error {
	if !s.own {
		return nil
	}
	keep := s.keep
	// Before 5.19 (c8644cd0efe7) the system call bpf is closed altogether to who has
	// none of these, if kernel.unprivileged_bpf_disabled is set: also where a descriptor
	// is all that the operation looks at.
	if err := system.Try(0, s.touch); err != nil {
		keep |= system.Set(system.CapBPF)
		if held, err := system.Effective(); err != nil || !held.Has(system.CapBPF) {
			keep |= system.Set(system.CapSysAdmin)
		}
	}
	left, err := system.Confine(keep)
	if errors.Is(err, unix.ENOTSUP) { // a binary with cgo, which is not ours to hand out
		fmt.Fprintf(s.errOut, "%s: capabilities are kept: %v\n", s.tool.Name, err)
		return nil
	}
	if err != nil {
		return err
	}
	if s.common.Verbose {
		fmt.Fprintf(s.errOut, "%s: capabilities that are kept: %s\n", s.tool.Name, left)
	}
	return nil
}

// touch does what a run does with the kernel's objects when all is attached: it reads a
// map and asks about programs.
func (s *session) touch() error {
	_, err := s.lost()
	return err
}

// privileges is the manual's text.
func (f *Facts) privileges() []string {
	var options []string
	for _, e := range extras() {
		options = append(options, fmt.Sprintf("%s needs %s as well, %s.", e.option, e.capability, e.what))
	}
	others := ""
	if len(f.files) > 0 {
		others = fmt.Sprintf(" To see all processes, and not only those of one's own user, it needs %s as well; it says what it cannot look into.",
			fileCapabilities())
	}
	return []string{
		fmt.Sprintf("Needs %s, or root. Before kernel 5.11 it also needs CAP_SYS_RESOURCE, or a limit of locked memory (ulimit -l) "+
			"that its maps fit in.", f.Needs()) + others,
		strings.Join(options, " ") + " CAP_DAC_READ_SEARCH lets an ordinary user see the names of containers, where their runtimes keep " +
			"them to themselves; without it they are called by their short ids.",
		"When all is attached the tool gives up all capabilities, those of root too, and may gain none by exec (no_new_privs). " +
			"It keeps only what it was given and still uses: " + f.keeps() + ".",
	}
}

// keeps says which capabilities a run may keep, and why.
func (f *Facts) keeps() string {
	keeps := []string{
		"CAP_DAC_READ_SEARCH where cgroups or containers are shown, to find their names",
		"CAP_BPF where the kernel asks for it at each look at a map (before 5.19, if kernel.unprivileged_bpf_disabled is set)",
	}
	switch {
	case len(f.files) > 0:
		keeps = append(keeps, f.Keep.String()+" to find files that are mapped later, and to attach to them")
	case f.Keep != 0:
		keeps = append(keeps, f.Keep.String()+" to look at other processes")
	}
	return strings.Join(keeps, "; ")
}

// remedy is the end of an error's sentence: what the user can do.
func (l *line) remedy(err error) string {
	if !errors.Is(err, probe.ErrNotPermitted) {
		return ""
	}
	held, _ := system.Effective()
	needs := l.needs()
	if held.Has(system.CapSysAdmin) {
		held |= system.Set(system.CapBPF, system.CapPerfmon)
	}
	if missing := needs &^ held; missing != 0 {
		return fmt.Sprintf(" (lacks %s: run it as root, or give it %s)", missing, needs)
	}
	return ""
}
