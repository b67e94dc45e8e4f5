package tool

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// command is the process of Plan.Exec, which waits until it is told to go.
type command struct {
	cmd  *exec.Cmd
	hold *os.File
	done chan struct{}
}

// startCommand starts a shell that will become the command. What the command prints goes
// to standard error, as output is the tool's.
func startCommand(text string) (*command, error) {
	wait, hold, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", text, err)
	}
	defer wait.Close()
	c := &command{exec.Command("/bin/sh", "-c", "read -r go <&3 || exit; exec 3<&-; exec "+text), hold, make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stderr, os.Stderr
	c.cmd.ExtraFiles = []*os.File{wait}
	if err := c.cmd.Start(); err != nil {
		hold.Close()
		return nil, fmt.Errorf("start %s: %w", text, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ends is its own affair
		close(c.done)
	}()
	return c, nil
}

// pid is that of the command.
func (c *command) pid() uint32 { return uint32(c.cmd.Process.Pid) }

// release lets it go.
func (c *command) release() error {
	if _, err := c.hold.WriteString("go\n"); err != nil {
		return fmt.Errorf("let the command go: %w", err)
	}
	return nil
}

// until returns a context that is done when the command is.
func (c *command) until(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// close ends one that was never let go; another goes on by itself.
func (c *command) close() error { return c.hold.Close() }
