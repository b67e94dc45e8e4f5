package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Debuginfod downloads debug files from debuginfod servers with the program debuginfod-find of
// elfutils, which caches them.
type Debuginfod struct {
	program string
	env     []string
}

// NewDebuginfod returns a Debuginfod for servers, a list of URLs separated by blanks, which are
// queried in this order. The error is exec.ErrNotFound if debuginfod-find is not installed.
func NewDebuginfod(servers string) (*Debuginfod, error) {
	program, err := exec.LookPath("debuginfod-find")
	if err != nil {
		return nil, fmt.Errorf("find debuginfod-find of elfutils: %w", err)
	}
	return &Debuginfod{program, append(os.Environ(), "DEBUGINFOD_URLS="+servers)}, nil
}

var errNoServer = errors.New("no debuginfod server configured, or no build-id")

// open downloads the debug file for a build-id and opens it. It blocks until the download ends.
func (d *Debuginfod) open(buildID string) (*os.File, error) {
	if d == nil || buildID == "" {
		return nil, errNoServer
	}
	cmd := exec.Command(d.program, "debuginfo", buildID)
	cmd.Env = d.env
	path, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("download debug file of build-id %s: %w", buildID, err)
	}
	return os.Open(strings.TrimSuffix(string(path), "\n"))
}

// SetDebuginfod sets where debug files are downloaded from that this machine does not have. Call it
// before Append.
func (ps *Processes) SetDebuginfod(d *Debuginfod) { ps.cache.servers = d }
