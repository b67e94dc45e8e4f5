package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Debuginfod has debug files fetched from servers, by elfutils' debuginfod-find, which
// keeps those that it has fetched.
type Debuginfod struct {
	program string
	env     []string
}

// NewDebuginfod returns one that asks these servers, URLs with blanks between them, one after
// another. The error is exec.ErrNotFound where debuginfod-find is not installed.
func NewDebuginfod(servers string) (*Debuginfod, error) {
	program, err := exec.LookPath("debuginfod-find")
	if err != nil {
		return nil, fmt.Errorf("find the program of elfutils: %w", err)
	}
	return &Debuginfod{program, append(os.Environ(), "DEBUGINFOD_URLS="+servers)}, nil
}

var errNoServer = errors.New("no server is asked")

// open opens the debug file of a build-id. It waits until that is there.
func (d *Debuginfod) open(buildID string) (*os.File, error) {
	if d == nil || buildID == "" {
		return nil, errNoServer
	}
	cmd := exec.Command(d.program, "debuginfo", buildID)
	cmd.Env = d.env
	path, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("fetch debug file of %s: %w", buildID, err)
	}
	return os.Open(strings.TrimSuffix(string(path), "\n"))
}

// Ask has servers asked for the debug files that this machine has not. It is called before
// there are frames.
func (ps *Processes) Ask(d *Debuginfod) { ps.cache.servers = d }
