package main

import (
	"bufio"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func stackCases() []comparison {
	return []comparison{
		{"profile", "bash loop of ls, sort, awk, true", "perf record --call-graph dwarf", []string{"perf", "bash", "ls", "sort", "awk", "true"}, shortLived},
	}
}

// shortPrefix begins the names of the loop's programs, which are copies of the installed ones. Both
// tools observe the whole machine; the prefix selects the samples of the loop.
const shortPrefix = "truth-"

// shortLoop runs each program until the shell has run for a number of seconds.
const shortLoop = `end=$((SECONDS + 6))
while ((SECONDS < end)); do
	"$1/truth-ls" -lR /usr/share/doc/b* > "$1/list"
	"$1/truth-sort" -k5 "$1/list" > "$1/sorted"
	"$1/truth-awk" '{ sum[$3] += $5 } END { for (k in sum) print k, sum[k] }' "$1/sorted" > "$1/sums"
	"$1/truth-true"
done`

// shortLived compares the share of stacks that reach the entry point of a program. Both tools
// sample the CPU clock at the same frequency during the same loop; only samples in user mode count.
func shortLived(ctx context.Context, m *machine) ([]figure, error) {
	if err := m.copyPrograms("bash", "ls", "sort", "awk", "true"); err != nil {
		return nil, err
	}
	data := m.path("perf.data")
	var stderr strings.Builder
	peer := exec.CommandContext(ctx, "perf", "record", "--quiet", "-a", "-m", "32M", "-e", "cpu-clock:u", "-F", "199", "--call-graph", "dwarf", "-o", data,
		"--", m.path(shortPrefix+"bash"), "-c", shortLoop, "bash", m.scratch)
	peer.Stderr = &stderr
	out, err := m.observe(ctx, func() error {
		if err := peer.Run(); err != nil {
			return fmt.Errorf("run perf record: %w: %s", err, stderr.String())
		}
		return nil
	}, "profile", "-F", "199", "--address")
	if err != nil {
		return nil, err
	}
	theirs, err := m.perfStacks(ctx, data)
	if err != nil {
		return nil, err
	}
	entries := programEntries{}
	ours, reference := share(profileStacks(out), entries), share(theirs, entries)
	if ours.samples == 0 || reference.samples == 0 {
		return nil, fmt.Errorf("%w: %v and %v samples", errNoSamples, ours.samples, reference.samples)
	}
	slack := 5.0
	if ours.rooted > reference.rooted {
		slack = 100
	}
	return []figure{
		{"% of stacks that reach the program's entry point", ours.rooted, reference.rooted, slack, "at most 5 lower, higher is better: both are sampled"},
		{"% of stacks with a frame outside mapped files", ours.outside, 0, 0, ""},
	}, nil
}

var errNoSamples = errors.New("no samples of the loop")

// copyPrograms copies programs to the scratch directory, with the prefix.
func (m *machine) copyPrograms(names ...string) error {
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			return fmt.Errorf("find program: %w", err)
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read program: %w", err)
		}
		if err := os.WriteFile(m.path(shortPrefix+name), program, 0o755); err != nil {
			return fmt.Errorf("copy program: %w", err)
		}
	}
	return nil
}

// sampledStack is a user stack as a tool reports it.
type sampledStack struct {
	count  float64
	frames []sampledFrame // innermost first
}

type sampledFrame struct {
	address uint64
	file    string // "" if the tool found none
}

// profileStacks returns the stacks of the loop that were sampled in user mode.
func profileStacks(out *observed) (all []sampledStack) {
	for _, r := range out.rows {
		if kernel, _ := r["kernel_stack"].([]any); len(kernel) > 0 || !strings.HasPrefix(r.str("comm"), shortPrefix) {
			continue
		}
		s := sampledStack{count: r.num("count")}
		frames, _ := r["user_stack"].([]any)
		for _, f := range frames {
			frame := row(f.(map[string]any))
			if frame.str("symbol") == "[incomplete]" {
				continue // not a frame: the caller of the last one was not found
			}
			address, _ := strconv.ParseUint(strings.TrimPrefix(frame.str("address"), "0x"), 16, 64)
			s.frames = append(s.frames, sampledFrame{address, frame.str("module")})
		}
		all = append(all, s)
	}
	return all
}

// perfStacks returns the stacks of the loop in the output of perf script: a line with the name of
// the task, a line "address (file)" per frame, and an empty line.
func (m *machine) perfStacks(ctx context.Context, data string) ([]sampledStack, error) {
	cmd := exec.CommandContext(ctx, "perf", "script", "--no-inline", "-i", data, "-F", "comm,ip,dso")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start perf script: %w", err)
	}
	all, err := readPerfStacks(stdout)
	return all, errors.Join(err, cmd.Wait())
}

func readPerfStacks(r io.Reader) (all []sampledStack, err error) {
	var s *sampledStack
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
			s = nil
		case s == nil:
			s = &sampledStack{count: 1}
			if strings.HasPrefix(strings.TrimSpace(line), shortPrefix) {
				all = append(all, *s)
				s = &all[len(all)-1]
			}
		default:
			text, file, _ := strings.Cut(strings.TrimSpace(line), " ")
			address, err := strconv.ParseUint(text, 16, 64)
			if err != nil {
				return nil, fmt.Errorf("read output of perf script: %q: %w", line, err)
			}
			file = strings.Trim(file, "()")
			if file == "[unknown]" {
				file = ""
			}
			s.frames = append(s.frames, sampledFrame{address, file})
		}
	}
	return all, lines.Err()
}

// shares are shares of samples in percent.
type shares struct{ samples, rooted, outside float64 }

func share(all []sampledStack, entries programEntries) (s shares) {
	for _, stack := range all {
		s.samples += stack.count
		if n := len(stack.frames); n > 0 && entries.has(stack.frames[n-1]) {
			s.rooted += stack.count
		}
		if slices.ContainsFunc(stack.frames, func(f sampledFrame) bool { return f.file == "" }) {
			s.outside += stack.count
		}
	}
	s.rooted, s.outside = 100*s.rooted/max(1, s.samples), 100*s.outside/max(1, s.samples)
	return s
}

// programEntries are the entry points of ELF files, by path. A process starts at the entry point of
// its dynamic linker, which jumps to that of the program. The same rule applies to both tools and
// needs no symbols, which stripped programs lack there.
type programEntries map[string]uint64

// has reports whether the frame is within 64 bytes after the entry point of its file. It compares
// addresses within a page, because files are mapped in pages.
func (e programEntries) has(f sampledFrame) bool {
	if !filepath.IsAbs(f.file) {
		return false
	}
	entry, isKnown := e[f.file]
	if !isKnown {
		if file, err := elf.Open(f.file); err == nil {
			entry = file.Entry
			file.Close()
		}
		e[f.file] = entry
	}
	page := uint64(unix.Getpagesize())
	return entry != 0 && (f.address-entry)%page < 64
}
