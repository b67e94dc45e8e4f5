package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// frame is a function of a stack as a tool shows it.
type frame struct {
	name    string // "" if it has none
	address uint64 // where it has no name, if it is shown
}

// sample is a stack, the innermost frame first, and how often it was seen.
type sample struct {
	frames []frame
	count  int
}

// subject is a tool that is measured.
type subject struct {
	name string
	// command looks at a process for so many seconds.
	command func(pid, seconds int) []string
	parse   func([]byte) ([]sample, error)
	// isPeer allows it to fail.
	isPeer bool
}

const hertz = 199

// subjects are ours and the peers of a tree. These are run by their own libraries, but with
// this machine's files before their eyes: in a tree of their own they would not find the
// programs.
func subjects(tree string) ([]subject, error) {
	ours, err := filepath.Abs("bin/corescope")
	if err != nil {
		return nil, err
	}
	all := []subject{corescope(ours)}
	libs, _ := filepath.Glob(filepath.Join(tree, "usr/lib/*-linux-gnu"))
	loader, _ := filepath.Glob(filepath.Join(tree, "usr/lib/*-linux-gnu/ld-linux-*"))
	if len(libs) == 0 || len(loader) == 0 {
		return nil, fmt.Errorf("%s has no libraries", tree)
	}
	run := func(program string, args ...string) []string {
		return append([]string{loader[0], "--library-path", libs[0], filepath.Join(tree, program)}, args...)
	}
	script := func(stack string) func(int, int) []string {
		return func(pid, seconds int) []string {
			text := fmt.Sprintf("profile:hz:%d /pid == %d/ { @[%s] = count(); } interval:s:%d { exit(); }", hertz, pid, stack, seconds)
			return run("usr/bin/bpftrace", "-q", "-f", "json", "-p", strconv.Itoa(pid), "-e", text)
		}
	}
	return append(all,
		subject{"libbpf-tools", func(pid, seconds int) []string {
			return run("usr/sbin/profile-libbpf", "-U", "-f", "-F", strconv.Itoa(hertz), "-p", strconv.Itoa(pid), strconv.Itoa(seconds))
		}, parseFolded, true},
		subject{"bpftrace ustack", script("ustack"), parseBpftrace, true},
		subject{"bpftrace dw_ustack", script("dw_ustack()"), parseBpftrace, true}), nil
}

func corescope(path string) subject {
	return subject{"corescope", func(pid, seconds int) []string {
		return []string{path, "profile", "-U", "--output", "json", "-F", strconv.Itoa(hertz), "--pid", strconv.Itoa(pid), "--address", strconv.Itoa(seconds)}
	}, parseRows, false}
}

// output runs the tool, with more options for ours, and returns what it prints. ready is
// called when it looks.
func (s *subject) output(ctx context.Context, pid, seconds int, more []string, ready func()) ([]byte, error) {
	args := s.command(pid, seconds)
	if !s.isPeer {
		args = append(args, more...)
	}
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for isBlind(cmd.Process.Pid) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	ready()
	if err := cmd.Wait(); err != nil && out.Len() == 0 {
		return nil, fmt.Errorf("%w: %s", err, lastLine(stderr.String()))
	}
	return out.Bytes(), nil
}

// isBlind tells whether a process lives that has no perf event yet.
func isBlind(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		if to, _ := os.Readlink(filepath.Join(dir, fd.Name())); strings.Contains(to, "perf_event") {
			return false
		}
	}
	return len(fds) > 0 // those of one that has ended are gone
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// parseRows reads profile's JSON.
func parseRows(out []byte) ([]sample, error) {
	var all []sample
	for line := range bytes.Lines(out) {
		var r struct {
			Type  string
			Count int
			Stack []struct{ Symbol, Address string } `json:"user_stack"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read row: %w", err)
		}
		if r.Type != "row" {
			continue
		}
		s := sample{count: r.Count}
		for _, f := range r.Stack {
			addr, _ := strconv.ParseUint(strings.TrimPrefix(f.Address, "0x"), 16, 64)
			s.frames = append(s.frames, frame{f.Symbol, addr})
		}
		all = append(all, s)
	}
	return all, nil
}

var bpftraceFrame = regexp.MustCompile(`^(.*)\+(0x)?[0-9a-f]+$`)

// parseBpftrace reads the map of counts by stack.
func parseBpftrace(out []byte) ([]sample, error) {
	var all []sample
	for line := range bytes.Lines(out) {
		var m struct {
			Type string
			Data map[string]map[string]int
		}
		if json.Unmarshal(line, &m) != nil || m.Type != "map" {
			continue
		}
		for stack, count := range m.Data["@"] {
			s := sample{count: count}
			for text := range strings.Lines(strings.TrimSpace(stack)) {
				s.frames = append(s.frames, bpftraceOf(strings.TrimSpace(text)))
			}
			all = append(all, s)
		}
	}
	return all, nil
}

func bpftraceOf(text string) frame {
	if addr, err := strconv.ParseUint(strings.TrimPrefix(text, "0x"), 16, 64); err == nil {
		return frame{address: addr}
	}
	if m := bpftraceFrame.FindStringSubmatch(text); m != nil {
		text = m[1]
	}
	return frame{name: text}
}

// parseFolded reads lines of folded stacks, whose first frame is the task's name.
func parseFolded(out []byte) ([]sample, error) {
	var all []sample
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ' ')
		count, err := strconv.Atoi(line[at+1:])
		if at < 0 || err != nil {
			continue
		}
		s := sample{count: count}
		names := strings.Split(line[:at], ";")
		for i := len(names) - 1; i > 0; i-- {
			name := names[i]
			if name == "[unknown]" {
				name = ""
			}
			s.frames = append(s.frames, frame{name: name})
		}
		all = append(all, s)
	}
	return all, nil
}
