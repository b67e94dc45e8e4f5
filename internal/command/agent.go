package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// agentProgram is the program of the verb agent.
const agentProgram = "corescope-agent"

// agent replaces this process by the agent, which is a program of its own.
func (c *Command) agent(_ context.Context, args []string) error {
	path, err := findAgent()
	if err != nil {
		return err
	}
	err = unix.Exec(path, append([]string{agentProgram}, args...), os.Environ())
	return fmt.Errorf("run %s: %w", path, err)
}

// findAgent returns the program in the directory of this one, or in that of PATH.
func findAgent() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find %s: %w", agentProgram, err)
	}
	beside := filepath.Join(filepath.Dir(self), agentProgram)
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	path, err := exec.LookPath(agentProgram)
	if err != nil {
		return "", fmt.Errorf("find %s in %s and in PATH: %w: install the package %s, or build it with make", agentProgram, filepath.Dir(self), err, agentProgram)
	}
	return path, nil
}
