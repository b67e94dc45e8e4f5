package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// held is a program that waits for its release: a shell that executes the program when it is
// released. It runs with all of its children in its own cgroup.
type held struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	cgroup string
	pid    int // of the program, not of its tracer
	stderr strings.Builder
	begin  time.Time
	cpu    time.Duration // CPU time, from the release to the exit
	wait   time.Duration // run queue latency, since its start
	wall   time.Duration
}

// The shell prints its process ID, because a tracer runs it as a child process.
const holdScript = `echo $$; read -r go; exec "$@"`

// hold starts the shell and waits until it is about to wait for its release. tracer, if any, is the
// command line of a tracer, to which that of the shell is appended.
func hold(ctx context.Context, tracer []string, program ...string) (*held, error) {
	h := &held{}
	argv := append(append([]string{}, tracer...), append([]string{"/bin/sh", "-c", holdScript, "sh"}, program...)...)
	h.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	h.cmd.Stderr = &h.stderr
	var err error
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	in := bufio.NewReader(stdout)
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("start %s: %w: %s", argv[0], err, h.stderr.String())
	}
	go io.Copy(io.Discard, in) //nolint:errcheck // the program's output is not used
	if h.pid, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		return nil, fmt.Errorf("read process ID: %w", err)
	}
	return h, h.enter()
}

// enter moves the program into a cgroup of its own.
func (h *held) enter() error {
	mount, err := cgroup2()
	if err != nil {
		return err
	}
	h.cgroup = filepath.Join(mount, "corescope-truth-"+strconv.Itoa(h.pid))
	if err := os.Mkdir(h.cgroup, 0o755); err != nil {
		return fmt.Errorf("create cgroup: %w", err)
	}
	if err := os.WriteFile(filepath.Join(h.cgroup, "cgroup.procs"), []byte(strconv.Itoa(h.pid)), 0); err != nil {
		return fmt.Errorf("enter cgroup: %w", err)
	}
	return nil
}

// cgroup2 returns the mount point of the cgroup v2 hierarchy.
func cgroup2() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("read mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("%w: cgroup2 is not mounted", errMissing)
}

// finish releases the program, and returns when it and its children have exited.
func (h *held) finish() error {
	before, _, err := schedstat(h.pid)
	if err != nil {
		return err
	}
	h.begin = time.Now()
	if _, err := io.WriteString(h.stdin, "\n"); err != nil {
		return fmt.Errorf("release program: %w", err)
	}
	h.stdin.Close()
	if h.cmd.Process.Pid == h.pid {
		// The times of a zombie can still be read.
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, h.pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
			return fmt.Errorf("wait for program: %w", err)
		}
		h.wall = time.Since(h.begin)
		after, wait, err := schedstat(h.pid)
		if err != nil {
			return err
		}
		h.cpu, h.wait = after-before, wait
	}
	if err := h.cmd.Wait(); err != nil {
		return fmt.Errorf("run %s: %w: %s", strings.Join(h.cmd.Args, " "), err, h.stderr.String())
	}
	return nil
}

// schedstat returns the CPU time and the run queue latency of a thread, as counted by the
// scheduler.
func schedstat(pid int) (cpu, wait time.Duration, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("%w: read schedstat: %w", errMissing, err)
	}
	_, err = fmt.Sscan(string(text), &cpu, &wait)
	return cpu, wait, err
}

// close removes the cgroup.
func (h *held) close() {
	_ = os.Remove(h.cgroup)
}
