package tool

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/system"
)

// reportUninspected reports the processes whose files cannot be read, if the run is about these
// processes and this process lacks capabilities for it. Processes that are hidden from root, such
// as by a security module, are only reported with --verbose and at the end of a run without rows.
func (s *Session) reportUninspected() error {
	closed := s.Objects.Uninspected
	if pids := s.Env.PIDs; len(pids) > 0 {
		closed = slices.DeleteFunc(slices.Clone(closed), func(pid uint32) bool { return !slices.Contains(pids, pid) })
	}
	if len(closed) == 0 {
		return nil
	}
	held, err := system.Effective()
	if err != nil {
		return err
	}
	missing := inspectCapabilities() &^ held
	if missing != 0 || len(s.Env.PIDs) > 0 || s.common.Verbose {
		fmt.Fprintf(s.ErrOut, "%s: %s\n", s.tool.Name, uninspected(closed, missing))
	}
	return nil
}

// inspectCapabilities returns the capabilities for reading files that processes of other users map.
func inspectCapabilities() system.Capabilities {
	return system.Set(system.CapSysPtrace, system.CapCheckpointRestore)
}

// uninspected formats a message about processes that cannot be inspected: it names the first few
// of them and the missing capabilities.
func uninspected(pids []uint32, missing system.Capabilities) string {
	const few = 3
	var names []string
	for _, pid := range pids[:min(few, len(pids))] {
		names = append(names, fmt.Sprintf("%d (%s)", pid, commOf(pid)))
	}
	why, which := "the kernel hides them", "they map"
	subject := fmt.Sprintf("%d processes: %s", len(pids), strings.Join(names, ", "))
	if len(pids) == 1 {
		subject, why, which = "process "+names[0], "the kernel hides it", "it maps"
	}
	if len(pids) > few {
		subject += ", ..."
	}
	if missing != 0 {
		why = "missing " + missing.String()
	}
	return fmt.Sprintf("cannot inspect %s (%s): libraries that only %s are not traced", subject, why, which)
}

// commOf returns the name of a process, or "?".
func commOf(pid uint32) string {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(comm), "\n")
}
