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

// subject is a tool that is measured: ours or a peer's.
type subject struct {
	name string // for tables
	// root is the tree that it is run in, or "" for the machine's own.
	root string
	args []string
}

// running is a subject that was started.
type running struct {
	cmd     *exec.Cmd
	out     *os.File
	stderr  bytes.Buffer
	spawned time.Time
}

// start starts it, with its rows going to a file of dir.
func (s *subject) start(ctx context.Context, dir string) (*running, error) {
	out, err := os.Create(filepath.Join(dir, "rows"))
	if err != nil {
		return nil, err
	}
	return s.startTo(ctx, out)
}

// startTo starts it by nothing but fork, chroot and exec, so that its start is its own.
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

// stop interrupts it, and returns how long that took.
func (r *running) stop() (time.Duration, error) {
	begin := time.Now()
	if err := r.cmd.Process.Signal(unix.SIGINT); err != nil {
		return 0, fmt.Errorf("interrupt: %w", err)
	}
	err := r.cmd.Wait()
	took := time.Since(begin)
	r.out.Close()
	// Some of the peers end with the signal's number, or with their last error.
	if r.cmd.ProcessState.ExitCode() < 0 || err != nil && strings.Contains(r.stderr.String(), "rror") {
		return 0, fmt.Errorf("%s: %w: %s", filepath.Base(r.cmd.Path), err, &r.stderr)
	}
	return took, nil
}

// rows returns how many lines have the text.
func (r *running) rows(text string) (int, error) {
	b, err := os.ReadFile(r.out.Name())
	return bytes.Count(b, []byte(text)), err
}

// lost is what the subject has said to be lost in all.
func (r *running) lost() int {
	var n int
	for line := range strings.Lines(r.stderr.String()) {
		if _, said, ok := strings.Cut(line, ": lost "); ok && strings.Contains(said, "in all") {
			fmt.Sscan(said, &n)
		}
	}
	return n
}

// errNotHere is of a subject that this kernel has no place for.
var errNotHere = errors.New("does not run here")

// settled waits until the subject has attached its programs: until what it has of them
// stays as it is for a while.
func (r *running) settled() error {
	const quiet, patience = 500 * time.Millisecond, 20 * time.Second
	var last state
	since := time.Now()
	for time.Since(r.spawned) < patience {
		o, err := kernelObjects(r.pid())
		if err != nil || !r.alive() {
			return fmt.Errorf("%w: %s", errNotHere, r.lastWords())
		}
		if now := (state{len(o.programs), o.links}); now != last {
			last, since = now, time.Now()
		}
		if last.programs > 0 && time.Since(since) > quiet {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("%w: nothing is attached within %v: %s", errNotHere, patience, r.lastWords())
}

// alive tells whether it has not ended; nobody has waited for it yet.
func (r *running) alive() bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.pid()))
	_, state, ok := strings.Cut(string(b), ") ")
	return err == nil && ok && state[0] != 'Z'
}

// kill ends what may have ended, and leaves nothing to wait for.
func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait()
	r.out.Close()
}

// lastWords is the last line that it has said on standard error, after it was killed.
func (r *running) lastWords() string {
	r.kill()
	if r.stderr.Len() == 0 {
		return r.cmd.ProcessState.String()
	}
	lines := strings.Split(strings.TrimSpace(r.stderr.String()), "\n")
	return lines[len(lines)-1]
}

// state is what changes while a subject starts.
type state struct{ programs, links int }

// drained waits until it writes no more.
func (r *running) drained() error {
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

// idle waits until it takes no more CPU time than looking around costs.
func (r *running) idle() error {
	const look, little = 300 * time.Millisecond, 5 * time.Millisecond
	for last := time.Duration(-1); ; {
		time.Sleep(look)
		now, err := cpuTime(r.pid())
		if err != nil {
			return err
		}
		if last >= 0 && now-last < little {
			return nil
		}
		last = now
	}
}
