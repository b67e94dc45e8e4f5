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

// frame is a frame as reported by a tool.
type frame struct {
	name    string // "" if unknown
	address uint64 // 0 if not reported
	module  string // "" if not reported
}

// sample is a stack, innermost frame first, and the number of its samples.
type sample struct {
	frames []frame
	count  int
}

// subject is a tool to measure.
type subject struct {
	name string
	// command returns the command that samples a process.
	command func(pid, seconds int) []string
	parse   func([]byte) ([]sample, error)
	// isPeer is set for tools that may fail.
	isPeer bool
}

const hertz = 199

// subjects returns corescope and the peers installed in tree. The peers use the loader and the
// libraries of the tree, but are not run in a chroot, where they would not find the files of the
// test programs.
func subjects(tree string) ([]subject, error) {
	ours, err := filepath.Abs("bin/corescope")
	if err != nil {
		return nil, err
	}
	all := []subject{corescope(ours)}
	libs, _ := filepath.Glob(filepath.Join(tree, "usr/lib/*-linux-gnu"))
	loader, _ := filepath.Glob(filepath.Join(tree, "usr/lib/*-linux-gnu/ld-linux-*"))
	if len(libs) == 0 || len(loader) == 0 {
		return nil, fmt.Errorf("find libraries in %s: none", tree)
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

// output runs the tool and returns its output. options are added for corescope only. output
// calls ready when the tool samples.
func (s *subject) output(ctx context.Context, pid, seconds int, options []string, ready func()) ([]byte, error) {
	args := s.command(pid, seconds)
	if !s.isPeer {
		args = append(args, options...)
	}
	var out, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	for isStarting(cmd.Process.Pid) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	ready()
	if err := cmd.Wait(); err != nil && out.Len() == 0 {
		return nil, fmt.Errorf("%w: %s", err, lastLine(stderr.String()))
	}
	return out.Bytes(), nil
}

// isStarting reports whether a process is running and has not opened a perf event yet.
func isStarting(pid int) bool {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		if file, _ := os.Readlink(filepath.Join(dir, fd.Name())); strings.Contains(file, "perf_event") {
			return false
		}
	}
	return len(fds) > 0 // a process that has exited has none
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// parseRows parses the JSON output of profile.
func parseRows(out []byte) ([]sample, error) {
	var all []sample
	for line := range bytes.Lines(out) {
		var r struct {
			Type  string
			Count int
			Stack []struct{ Symbol, Address, Module string } `json:"user_stack"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("decode row: %w", err)
		}
		if r.Type != "row" {
			continue
		}
		s := sample{count: r.Count}
		for _, f := range r.Stack {
			addr, _ := strconv.ParseUint(strings.TrimPrefix(f.Address, "0x"), 16, 64)
			s.frames = append(s.frames, frame{f.Symbol, addr, f.Module})
		}
		all = append(all, s)
	}
	return all, nil
}

var bpftraceFrame = regexp.MustCompile(`^(.*)\+(0x)?[0-9a-f]+$`)

// parseBpftrace parses the JSON output of bpftrace: a map from stacks to counts.
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

// parseFolded parses folded stacks whose first frame is the name of the task.
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
