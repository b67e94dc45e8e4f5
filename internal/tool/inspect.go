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
	closed := s.uninspected()
	if len(closed) == 0 {
		return nil
	}
	held, err := system.Effective()
	if err != nil {
		return err
	}
	missing := inspectCapabilities() &^ held
	if missing != 0 || len(s.Env.PIDs) > 0 || s.common.Verbose {
		fmt.Fprintf(s.ErrOut, "%s: %s\n", s.tool.Name, formatUninspected(closed, missing))
	}
	return nil
}

// uninspected lists the processes whose files cannot be read, of those that the run can select. The
// processes of --exec are not among them: this process has started them.
func (s *Session) uninspected() []uint32 {
	if s.command != nil {
		return nil
	}
	return s.Env.tasks.selectable(s.Objects.Uninspected)
}

// selectable returns those of the processes that --pid and --tid can select. Threads are in the same
// process until they exit, while other filters depend on what a process can change, such as its name.
func (t *tasks) selectable(pids []uint32) []uint32 {
	if t == nil || len(t.PID)+len(t.TID) == 0 {
		return pids
	}
	var threads []uint32 // the processes of the threads
	for _, tid := range t.TID {
		if pid, err := system.ProcessOf("/", tid); err == nil {
			threads = append(threads, pid)
		}
	}
	return slices.DeleteFunc(slices.Clone(pids), func(pid uint32) bool {
		return len(t.PID) > 0 && !slices.Contains(t.PID, pid) || len(t.TID) > 0 && !slices.Contains(threads, pid)
	})
}

// inspectCapabilities returns the capabilities for reading files that processes of other users map.
func inspectCapabilities() system.Capabilities {
	return system.Set(system.CapSysPtrace, system.CapCheckpointRestore)
}

// formatUninspected formats a message about processes that cannot be inspected: it names the first few
// of them and the missing capabilities.
func formatUninspected(pids []uint32, missing system.Capabilities) string {
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
