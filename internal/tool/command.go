package tool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"unicode"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// command is the process of Plan.Exec. It waits until it is released, and then executes the
// command. Programs follow its descendants (command.bpf.h).
type command struct {
	text    string
	cmd     *exec.Cmd
	hold    *os.File
	done    chan struct{}
	err     error          // result of cmd.Wait, valid once done is closed
	objects *probe.Objects // programs and maps that track its processes
}

// commandHook and commandMap are those of command.bpf.h.
const (
	commandHook = "command"
	commandMap  = "command_processes"
)

// gate is a shell script that waits for a line on file descriptor 3 and then executes its arguments.
const gate = `read -r go <&3 || exit; exec 3<&-; exec "$@"`

// argv returns the program of a command and its arguments. A program with plain words is executed
// directly, as make(1) does, so that no shell is observed. Everything else needs a shell: a list, a
// pipeline, an assignment, quotes, a built-in command. Returns ErrUsage for a program that does not exist.
func argv(command string) ([]string, error) {
	shell := []string{"/bin/sh", "-c", command}
	words := strings.Fields(command)
	if len(words) == 0 || strings.ContainsFunc(command, isShellSyntax) || strings.Contains(words[0], "=") {
		return shell, nil
	}
	_, err := exec.LookPath(words[0])
	if err == nil {
		return words, nil
	}
	if exec.Command("/bin/sh", "-c", `command -v "$1"`, "sh", words[0]).Run() != nil {
		return nil, fmt.Errorf("%w: command %q: %w", flags.ErrUsage, command, errors.Unwrap(err))
	}
	return shell, nil // built in
}

// isShellSyntax reports whether a shell may give the character a special meaning. Spaces and tabs
// do not count.
func isShellSyntax(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune(" \t_-./:=,@%+", r)
}

// startCommand starts the process that will execute the command. Its output goes to standard error,
// because standard output belongs to the tool.
func startCommand(text string) (*command, error) {
	words, err := argv(text)
	if err != nil {
		return nil, err
	}
	wait, hold, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start command: %w", err)
	}
	defer wait.Close()
	c := &command{text: text, cmd: exec.Command("/bin/sh", append([]string{"-c", gate, "sh"}, words...)...), hold: hold, done: make(chan struct{})}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = os.Stdin, os.Stderr, os.Stderr
	c.cmd.ExtraFiles = []*os.File{wait}
	if err := c.cmd.Start(); err != nil {
		hold.Close()
		return nil, fmt.Errorf("start command: %w", err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// pid returns the PID of the command in the PID namespace of this process.
func (c *command) pid() uint32 { return uint32(c.cmd.Process.Pid) }

// variables returns the constants of command.bpf.h.
func (c *command) variables() (map[string]any, error) {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &ns); err != nil {
		return nil, fmt.Errorf("find the PID namespace of the command: %w", err)
	}
	return map[string]any{"task_filter": true, "targ_command": c.pid(), "targ_command_ns": uint32(ns.Ino)}, nil
}

// release lets the process execute the command.
func (c *command) release() error {
	if _, err := c.hold.WriteString("go\n"); err != nil {
		return fmt.Errorf("start command: %w", err)
	}
	return nil
}

// until returns a context that is done when the command ends.
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

// endCommand returns the failure of the command, if any, and reports processes that it has left
// running. A command that still runs has not failed, nor has one that ended together with an
// interrupted run: a terminal sends the signal to both.
func (s *Session) endCommand(interrupted context.Context) error {
	if s.command == nil || interrupted.Err() != nil {
		return nil
	}
	select {
	case <-s.command.done:
	default:
		return nil
	}
	running, err := s.command.running()
	if running > 0 {
		fmt.Fprintf(s.ErrOut, "%s: the command ended before %s that it started: their further activity is not observed\n",
			s.tool.Name, plural(running, "process", "processes"))
	}
	if s.command.err != nil {
		err = errors.Join(err, fmt.Errorf("command %q failed: %w", s.command.text, s.command.err))
	}
	return err
}

// running returns the number of processes of the command that have not exited.
func (c *command) running() (n uint64, err error) {
	err = probe.EachEntry(c.objects.Maps[commandMap], func(_, _ *uint32) { n++ })
	if err != nil {
		return 0, fmt.Errorf("count processes of the command: %w", err)
	}
	return n, nil
}

// has reports whether a process belongs to the command. The PID is that in the PID namespace of
// this process.
func (c *command) has(pid uint32) bool {
	if pid == c.pid() {
		return true
	}
	m, found := c.objects.Maps[commandMap], false
	if system.InitialPIDNamespace("/") {
		var nsPID uint32
		return m.Lookup(pid, &nsPID) == nil
	}
	_ = probe.EachEntry(m, func(_, ns *uint32) { found = found || *ns == pid })
	return found
}

// close kills a process that was never released. A released command continues.
func (c *command) close() error { return c.hold.Close() }

// followCommand sets what the programs need to follow the command, if this run has one.
func (l *line) followCommand(spec *ebpf.CollectionSpec, plan *Plan, vars map[string]any) error {
	if m := spec.Maps[commandMap]; m != nil && plan.Exec == "" {
		m.MaxEntries = 1
	}
	if l.command == nil {
		return nil
	}
	filter, err := l.command.variables()
	maps.Copy(vars, filter)
	return err
}

// start starts the process of Plan.Exec, if set.
func (l *line) start(p *Plan) (err error) {
	if p.Exec == "" || l.common.Explain {
		return nil
	}
	if !reflect.ValueOf(l.tasks).IsZero() {
		return fmt.Errorf("%w: a command to run cannot be combined with task filters such as --pid: only its processes are observed", flags.ErrUsage)
	}
	l.command, err = startCommand(p.Exec)
	return err
}
