package tool

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/doctor"
	"github.com/corescope/corescope/internal/ring"
	"github.com/corescope/corescope/internal/system"
)

// Needs returns the capabilities that every run of the tool needs.
func (t *Tool) Needs() system.Capabilities {
	return doctor.Needs | system.Set(t.Capabilities...)
}

// fileCapabilities returns the capabilities for reading files that processes map. Tools with
// uprobes need them during the whole run.
func fileCapabilities() system.Capabilities {
	return system.Set(system.CapSysPtrace, system.CapCheckpointRestore, system.CapDACReadSearch)
}

// keep returns the capabilities that are needed after all hooks are attached.
func (t *Tool) keep(p *Plan) system.Capabilities {
	keep := system.Set(p.Keep...)
	if len(p.Files) > 0 {
		keep |= t.Needs() | fileCapabilities()
	}
	return keep
}

// extra is a capability that only some options need.
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

// needs returns the capabilities that this command line needs.
func (l *line) needs() system.Capabilities {
	needs := l.tool.Needs()
	for _, e := range extras() {
		if e.given(&l.common) {
			needs |= system.Set(e.capability)
		}
	}
	return needs
}

// confine drops all capabilities that are no longer needed, if the process exists for this run
// alone. It is called when all hooks are attached and all files open.
func (s *Session) confine() error {
	if !s.own {
		return nil
	}
	keep := s.keep | s.perfNeeds()
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
		fmt.Fprintf(s.ErrOut, "%s: capabilities are kept: %v\n", s.tool.Name, err)
		return nil
	}
	if err != nil {
		return err
	}
	if s.common.Verbose {
		fmt.Fprintf(s.ErrOut, "%s: capabilities that are kept: %s\n", s.tool.Name, left)
	}
	return nil
}

// perfNeeds returns the capabilities for opening perf buffers on CPUs that come online, if the run
// has perf buffers. It tries whether CAP_PERFMON is sufficient.
func (s *Session) perfNeeds() system.Capabilities {
	if m := s.Objects.Maps["events"]; m == nil || m.Type() != ebpf.PerfEventArray {
		return 0
	}
	needs := system.Set(system.CapPerfmon, system.CapIPCLock)
	if system.Try(needs, ring.CanOpen) != nil {
		needs |= system.Set(system.CapSysAdmin)
	}
	return needs
}

// touch performs the operations that a run performs after the start: it reads a map and queries
// programs.
func (s *Session) touch() error {
	_, err := s.lost()
	return err
}

// privileges returns the text of the manual page.
func (f *facts) privileges() []string {
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
			"that its maps fit in.", f.tool.Needs()) + others,
		strings.Join(options, " ") + " Where kernel.perf_event_paranoid is above 2, as on Debian and Ubuntu, perf buffers and hooks of the kinds " +
			"tp, kprobe and uprobe may need CAP_SYS_ADMIN. CAP_DAC_READ_SEARCH lets an ordinary user see the names of containers, where their runtimes keep " +
			"them to themselves; without it they are called by their short ids.",
		"When all is attached the tool gives up all capabilities, those of root too, and may gain none by exec (no_new_privs). " +
			"It keeps only what it was given and still uses: " + f.keeps() + ".",
	}
}

// keeps says which capabilities a run may keep, and why.
func (f *facts) keeps() string {
	keeps := []string{
		"CAP_DAC_READ_SEARCH where cgroups or containers are shown, to find their names",
		"CAP_PERFMON and CAP_IPC_LOCK where there are perf buffers, for CPUs that come online (CAP_SYS_ADMIN where that is not enough)",
		"CAP_BPF where the kernel asks for it at each look at a map (before 5.19, if kernel.unprivileged_bpf_disabled is set)",
	}
	switch {
	case len(f.files) > 0:
		keeps = append(keeps, f.Keep.String()+" to find files that are mapped later, and to attach to them")
	case f.Keep.Has(system.CapPerfmon):
		keeps = append(keeps, f.Keep.String()+" to look at other processes, and at CPUs that come online")
	case f.Keep != 0:
		keeps = append(keeps, f.Keep.String()+" to look at other processes")
	}
	return strings.Join(keeps, "; ")
}

// remedy is the end of an error's sentence: what the user can do.
func (l *line) remedy(err error) string {
	if exitCode(err) == ExitUsage {
		return ""
	}
	if hint := doctor.Remedy(err, doctor.Read("/", l.common.BTF), l.needs()); hint != "" {
		return " (" + hint + ")"
	}
	return ""
}
