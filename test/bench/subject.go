package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// subject is a tool to measure.
type subject struct {
	name string // name in tables
	// root is the root directory of the process, or "" for that of this process.
	root string
	args []string
}

// running is a running subject.
type running struct {
	cmd     *exec.Cmd
	out     *os.File
	stderr  bytes.Buffer
	spawned time.Time
}

// start starts the subject with output to a file in dir.
func (s *subject) start(ctx context.Context, dir string) (*running, error) {
	out, err := os.Create(filepath.Join(dir, "rows"))
	if err != nil {
		return nil, err
	}
	return s.startTo(ctx, out)
}

// startTo starts the subject with fork, chroot and exec only, so that the time to first event
// includes nothing else.
func (s *subject) startTo(ctx context.Context, out *os.File) (*running, error) {
	r := &running{cmd: exec.CommandContext(ctx, s.args[0], s.args[1:]...), out: out}
	r.cmd.Stdout, r.cmd.Stderr = out, &r.stderr
	if s.root != "" {
		r.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: s.root}
		r.cmd.Dir = "/"
	}
	r.spawned = time.Now()
	if err := r.cmd.Start(); err != nil {
		out.Close()
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	return r, nil
}

func (r *running) pid() int { return r.cmd.Process.Pid }

// stop interrupts the subject and returns the time until it exited.
func (r *running) stop() (time.Duration, error) {
	begin := time.Now()
	if err := r.cmd.Process.Signal(unix.SIGINT); err != nil {
		return 0, fmt.Errorf("interrupt: %w", err)
	}
	err := r.cmd.Wait()
	took := time.Since(begin)
	r.out.Close()
	// Some peers exit with the number of the signal, or with their last error.
	if r.cmd.ProcessState.ExitCode() < 0 || err != nil && strings.Contains(r.stderr.String(), "rror") {
		return 0, fmt.Errorf("%s: %w: %s", filepath.Base(r.cmd.Path), err, &r.stderr)
	}
	return took, nil
}

// rows returns the number of occurrences of text in the output.
func (r *running) rows(text string) (int, error) {
	b, err := os.ReadFile(r.out.Name())
	return bytes.Count(b, []byte(text)), err
}

// lost returns the total number of lost events that the subject has reported.
func (r *running) lost() int {
	var n int
	for line := range strings.Lines(r.stderr.String()) {
		if _, text, ok := strings.Cut(line, ": lost "); ok && strings.Contains(text, "in total") {
			fmt.Sscan(text, &n)
		}
	}
	return n
}

// errUnavailable is returned for a subject that cannot run on this machine.
var errUnavailable = errors.New("unavailable")

// waitAttached waits until the subject has attached its programs: until the number of programs
// and links has not changed for a while.
func (r *running) waitAttached() error {
	const quiet, timeout = 500 * time.Millisecond, 20 * time.Second
	var last state
	since := time.Now()
	for time.Since(r.spawned) < timeout {
		o, err := kernelObjects(r.pid())
		if err != nil || !r.alive() {
			return fmt.Errorf("%w: %s", errUnavailable, r.lastError())
		}
		if now := (state{len(o.programs), o.links}); now != last {
			last, since = now, time.Now()
		}
		if last.programs > 0 && time.Since(since) > quiet {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%w: no program attached within %v: %s", errUnavailable, timeout, r.lastError())
}

// alive reports whether the subject has not exited. It must be called before Wait.
func (r *running) alive() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.pid()))
	_, state, ok := strings.Cut(string(b), ") ")
	return err == nil && ok && state[0] != 'Z'
}

// kill kills the subject if it is still running, and waits for it.
func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	r.out.Close()
}

// lastError kills the subject and returns the last line of its standard error.
func (r *running) lastError() string {
	r.kill()
	if r.stderr.Len() == 0 {
		return r.cmd.ProcessState.String()
	}
	lines := strings.Split(strings.TrimSpace(r.stderr.String()), "\n")
	return lines[len(lines)-1]
}

// state is the number of BPF objects of a subject.
type state struct{ programs, links int }

// waitWritten waits until the size of the output does not change any more.
func (r *running) waitWritten() error {
	for last := int64(-1); ; {
		time.Sleep(300 * time.Millisecond)
		info, err := os.Stat(r.out.Name())
		if err != nil {
			return err
		}
		if info.Size() == last {
			return nil
		}
		last = info.Size()
	}
}

// waitIdle waits until the subject uses almost no CPU time any more.
func (r *running) waitIdle() error {
	const interval, threshold = 300 * time.Millisecond, 5 * time.Millisecond
	for last := time.Duration(-1); ; {
		time.Sleep(interval)
		now, err := cpuTime(r.pid())
		if err != nil {
			return err
		}
		if last >= 0 && now-last < threshold {
			return nil
		}
		last = now
	}
}
