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
	if t.NoPrograms {
		return system.Set(t.Capabilities...)
	}
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
	isSet      func(*common) bool
	purpose    string
}

func extras() []extra {
	return []extra{
		{system.CapSysAdmin, "--stats", func(c *common) bool { return c.Stats }, "to enable the kernel's measurement of BPF run time"},
		{system.CapIPCLock, "--perf-buffer", func(c *common) bool { return c.Perf },
			"if the buffers exceed kernel.perf_event_mlock_kb plus the limit of locked memory (ulimit -l)"},
	}
}

// StreamNeeds returns the capabilities that streams of any of the tools can need, at their start or later.
func StreamNeeds(tools []*Tool) system.Capabilities {
	needs := fileCapabilities() | system.Set(system.CapSyslog, system.CapIPCLock, system.CapSysAdmin)
	for _, t := range tools {
		needs |= t.Needs()
	}
	return needs
}

// needs returns the capabilities that this command line needs.
func (l *line) needs() system.Capabilities {
	needs := l.tool.Needs()
	for _, e := range extras() {
		if e.isSet(&l.common) {
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
	// Before kernel 5.19 (c8644cd0efe7), if kernel.unprivileged_bpf_disabled is set, every bpf(2)
	// operation needs CAP_BPF or CAP_SYS_ADMIN, even one that only uses an open file descriptor.
	if err := system.Try(0, s.touch); err != nil {
		keep |= system.Set(system.CapBPF)
		if held, err := system.Effective(); err != nil || !held.Has(system.CapBPF) {
			keep |= system.Set(system.CapSysAdmin)
		}
	}
	left, err := system.Confine(keep)
	if errors.Is(err, unix.ENOTSUP) { // a binary built with cgo, which releases are not
		fmt.Fprintf(s.ErrOut, "%s: cannot drop capabilities: %v\n", s.tool.Name, err)
		return nil
	}
	if err != nil {
		return err
	}
	if s.common.Verbose {
		fmt.Fprintf(s.ErrOut, "%s: remaining capabilities: %s\n", s.tool.Name, left)
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

// privileges returns the section PRIVILEGES of the manual page, by paragraph.
func (f *facts) privileges() []string {
	if f.tool.Access != "" {
		return []string{"Loads no BPF programs. " + f.tool.Access + " --stats also needs CAP_SYS_ADMIN."}
	}
	if f.tool.NoPrograms {
		return []string{"Needs no capability: it has no BPF programs and creates nothing in the kernel. --stats also needs CAP_SYS_ADMIN."}
	}
	var options []string
	for _, e := range extras() {
		options = append(options, fmt.Sprintf("%s also needs %s, %s.", e.option, e.capability, e.purpose))
	}
	others := ""
	if len(f.files) > 0 {
		others = fmt.Sprintf(" To trace processes of other users it also needs %s; processes that it cannot inspect are reported.",
			fileCapabilities())
	}
	return []string{
		fmt.Sprintf("Needs %s, or root. Before kernel 5.11 it also needs CAP_SYS_RESOURCE, or a limit of locked memory (ulimit -l) "+
			"that is large enough for its maps.", f.tool.Needs()) + others,
		strings.Join(options, " ") + " If kernel.perf_event_paranoid is greater than 2, as on Debian and Ubuntu, perf buffers and the attach types " +
			"tp, kprobe and uprobe may need CAP_SYS_ADMIN. Users other than root need CAP_DAC_READ_SEARCH to see the names of containers whose runtime " +
			"restricts access to its files; otherwise containers have their short IDs as names.",
		"Once all hooks are attached, the tool drops all capabilities that it no longer needs, also as root, and sets no_new_privs, " +
			"so that it cannot regain capabilities by exec. It keeps, if it had them at the start: " + f.kept() + ".",
	}
}

// kept describes the capabilities that a run may keep, and why.
func (f *facts) kept() string {
	kept := []string{
		"CAP_DAC_READ_SEARCH to find the names of cgroups and containers, if they are shown",
		"CAP_PERFMON and CAP_IPC_LOCK (CAP_SYS_ADMIN if these are not sufficient) to open perf buffers of CPUs that come online, if perf buffers are used",
		"CAP_BPF if the kernel requires it to read maps (before 5.19, if kernel.unprivileged_bpf_disabled is set)",
	}
	switch {
	case len(f.files) > 0:
		kept = append(kept, f.Keep.String()+" to attach to files that are mapped later")
	case f.Keep.Has(system.CapPerfmon):
		kept = append(kept, f.Keep.String()+" to read data of other processes, and to sample on CPUs that come online")
	case f.Keep != 0:
		kept = append(kept, f.Keep.String()+" to read data of other processes")
	}
	return strings.Join(kept, "; ")
}

// remedy returns advice for the user, which is appended to the error message, or "".
func (l *line) remedy(err error) string {
	if exitCode(err) == ExitUsage {
		return ""
	}
	if hint := doctor.Remedy(err, doctor.Read("/", l.common.BTF), l.needs()); hint != "" {
		return " (" + hint + ")"
	}
	return ""
}
