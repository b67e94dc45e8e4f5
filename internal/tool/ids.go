package tool

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/system"
)

// checkIDs returns a usage error for processes, threads and CPUs that do not exist, and for all IDs
// of tasks if /proc belongs to another PID namespace than corescope: the user can mean either.
func checkIDs(env *Env, all []flags.IDs) error {
	for _, given := range all {
		if given.Kind != flags.CPU {
			if err := env.checkProc(); err != nil {
				return fmt.Errorf("%w: %s: cannot identify the %s: %w", flags.ErrUsage, given.Flag, given.Kind, err)
			}
		}
		for _, id := range given.IDs {
			if err := checkID(given.Kind, id); err != nil {
				return fmt.Errorf("%w: %s %d: %w", flags.ErrUsage, given.Flag, id, err)
			}
		}
	}
	return nil
}

func checkID(kind flags.Kind, id int64) error {
	if kind == flags.CPU {
		return checkCPU(id)
	}
	pid, err := system.ProcessOf("/", uint32(id))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("no such %s", kind)
	case err != nil:
		return err
	case kind == flags.Process && int64(pid) != id:
		return fmt.Errorf("this is a thread of process %d: use --tid to select threads", pid)
	}
	return nil
}

// checkCPU accepts -1, which means all CPUs; flags that do not support it reject it before.
func checkCPU(cpu int64) error {
	online, err := system.OnlineCPUs("/")
	if err != nil {
		return err
	}
	if cpu < 0 || system.InCPUList(online, cpu) {
		return nil
	}
	return fmt.Errorf("no such online CPU (online: %s)", online)
}
