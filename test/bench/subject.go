package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// subject is a tool that is measured: ours or a peer's.
type subject struct {
	name string // for tables
	args []string
}

// running is a subject that was started.
type running struct {
	cmd     *exec.Cmd
	out     *os.File
	stderr  bytes.Buffer
	spawned time.Time
}

// start starts it, with its rows going to a file of dir. It has the process id that the
// command has: what stands before a peer in its tree ends in exec.
func (s *subject) start(ctx context.Context, dir string) (*running, error) {
	out, err := os.Create(filepath.Join(dir, "rows"))
	if err != nil {
		return nil, err
	}
	r := &running{cmd: exec.CommandContext(ctx, s.args[0], s.args[1:]...), out: out}
	r.cmd.Stdout, r.cmd.Stderr = out, &r.stderr
	r.spawned = time.Now()
	if err := r.cmd.Start(); err != nil {
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

// settled waits until the subject has attached its programs: until what it has of them
// stays as it is for a while.
func (r *running) settled() error {
	const quiet, patience = 500 * time.Millisecond, 20 * time.Second
	var last state
	since := time.Now()
	for time.Since(r.spawned) < patience {
		o, err := kernelObjects(r.pid())
		if err != nil {
			return fmt.Errorf("%w: %s", err, &r.stderr)
		}
		if now := (state{len(o.programs), o.links}); now != last {
			last, since = now, time.Now()
		}
		if last.programs > 0 && time.Since(since) > quiet {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("nothing is attached within %v: %s", patience, &r.stderr)
}

// state is what changes while a subject starts.
type state struct{ programs, links int }

// drained waits until no more rows with the text come, and counts them.
func (r *running) drained(text string) (int, error) {
	for last := -1; ; {
		time.Sleep(300 * time.Millisecond)
		n, err := r.rows(text)
		if err != nil || n == last {
			return n, err
		}
		last = n
	}
}
