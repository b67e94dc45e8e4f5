package resettrace

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/value"
)

// settings are the files with a single value, and their defaults. switches come after all others, so
// that these do not write to the buffer.
var settings, switches = []setting{
	{"current_tracer", "nop"}, {"tracing_thresh", "0"}, {"max_graph_depth", "0"},
	{"function_profile_enabled", "0"}, {"options/stacktrace", "0"}, {"options/userstacktrace", "0"},
	{"options/event-fork", "0"}, {"options/function-fork", "0"},
}, []setting{{"tracing_on", "1"}}

type setting struct{ file, normal string }

// filters are the files with lists that are empty by default.
var filters = []string{
	"set_ftrace_filter", "set_ftrace_notrace", "set_graph_function", "set_graph_notrace",
	"set_ftrace_pid", "set_ftrace_notrace_pid", "set_event_pid", "set_event_notrace_pid",
}

// probes are the files with dynamic events; dynamic_events has those of the other files too (5.0).
var probes = []string{"dynamic_events", "kprobe_events", "uprobe_events"}

const (
	buffer     = "trace"
	events     = "set_event"
	conditions = "events" // the filters and triggers of all events
)

func isKnown(name string) bool {
	isNamed := func(s setting) bool { return s.file == name }
	return slices.ContainsFunc(slices.Concat(settings, switches), isNamed) || slices.Contains(slices.Concat(filters, probes, []string{buffer, events, conditions}), name)
}

// resetter resets the files of one instance.
type resetter struct {
	*options
	dir    string
	proc   string
	user   string // why a process seems to trace, or ""
	rows   []row
	failed int
}

func (r *resetter) all() {
	r.probes()
	r.settings(settings)
	for _, file := range filters {
		if r.wants(file) {
			r.filter(file)
		}
	}
	if r.wants(events) {
		if text := contents(r.read(events)); text != "" {
			r.change(events, text, true, func() error { return r.write("events/enable", "0") })
		}
	}
	if r.wants(conditions) {
		r.conditions()
	}
	r.settings(switches)
	if r.wants(buffer) {
		if text := r.firstEntry(); text != "" {
			r.change(buffer, text, false, func() error { return r.truncate(buffer) })
		}
	}
}

func (r *resetter) wants(file string) bool {
	return len(r.Files) == 0 || slices.Contains(r.Files, file)
}

func (r *resetter) settings(all []setting) {
	for _, s := range all {
		if !r.wants(s.file) {
			continue
		}
		if text := strings.TrimSpace(r.read(s.file)); text != "" && text != s.normal {
			r.change(s.file, text, true, func() error { return r.write(s.file, s.normal) })
		}
	}
}

// filter empties a list. Commands of functions, such as "func:traceoff:unlimited", are removed one by
// one.
func (r *resetter) filter(file string) {
	text := contents(r.read(file))
	if text == "" || text == "no pid" {
		return
	}
	r.change(file, text, true, func() error {
		err := r.truncate(file)
		for line := range strings.Lines(text) {
			if strings.Contains(line, ":") {
				err = errors.Join(err, r.write(file, "!"+strings.TrimSpace(line)))
			}
		}
		return err
	})
}

// conditions removes filters and triggers of events.
func (r *resetter) conditions() {
	found, _ := filepath.Glob(filepath.Join(r.dir, "events/*/*/[ft]*"))
	for _, path := range found {
		file, _ := filepath.Rel(r.dir, path)
		text := contents(r.read(file))
		switch {
		case text == "" || text == "none":
		case filepath.Base(path) == "filter":
			r.change(file, text, true, func() error { return r.write(file, "0") })
		case filepath.Base(path) == "trigger":
			r.change(file, text, true, func() (err error) {
				for line := range strings.Lines(text) {
					err = errors.Join(err, r.write(file, "!"+strings.TrimSpace(line)))
				}
				return err
			})
		}
	}
}

// probes removes the dynamic events that nobody uses. Instances have none of their own.
func (r *resetter) probes() {
	if r.Instance != "" {
		return
	}
	for _, file := range probes {
		if !r.wants(file) {
			continue
		}
		text := r.read(file)
		for line := range strings.Lines(text) {
			r.probe(file, strings.TrimSpace(line))
		}
		if file == probes[0] && text != "" && len(r.Files) == 0 {
			return // the others have the same events
		}
	}
}

// probe removes a dynamic event: "p:uprobes/name /bin/bash:0x1234", "r8:kprobes/name do_exit".
func (r *resetter) probe(file, line string) {
	kind, rest, _ := strings.Cut(line, ":")
	name, _, _ := strings.Cut(rest, " ")
	if kind == "" || name == "" || !strings.ContainsRune("preft", rune(kind[0])) {
		return
	}
	enable := filepath.Join("events", name, "enable")
	remove := func() error {
		if strings.TrimSpace(r.read(enable)) != "0" {
			if err := r.write(enable, "0"); err != nil {
				return err
			}
		}
		return r.append(file, "-:"+name)
	}
	if creator := r.creator(name); creator != "" && !r.Force {
		r.rows = append(r.rows, row{Action: kept, File: file, Value: summary(line), Reason: value.Bytes("its name has the PID of the living process " + creator)})
		return
	}
	r.change(file, line, false, remove)
}

// pidInName matches the PID in the names of probes of BCC and libbpf.
var pidInName = regexp.MustCompile(`_bcc_([0-9]+)|/libbpf_([0-9]+)_`)

// creator returns the PID in the name of a probe if that process lives, or "".
func (r *resetter) creator(name string) string {
	m := pidInName.FindStringSubmatch(name)
	if m == nil {
		return ""
	}
	pid := m[1] + m[2]
	if _, err := os.Stat(filepath.Join(r.proc, pid)); err != nil {
		return ""
	}
	return pid
}

const kept = "kept"

// change resets a file with these contents, unless that needs -F or a process seems to trace. It adds
// the row.
func (r *resetter) change(file, text string, needsForce bool, reset func() error) {
	verb := "reset"
	if slices.Contains(probes, file) {
		verb = "removed"
	}
	c := row{Action: verb, File: file, Value: summary(text)}
	switch {
	case needsForce && !r.Force:
		c.Action, c.Reason = kept, value.Bytes("-F resets it: another tracer may use it")
	case r.user != "":
		c.Action, c.Reason = kept, value.Bytes(r.user)
	case r.DryRun:
		c.Action = "would " + strings.TrimSuffix(verb, "d")
	default:
		err := reset()
		switch {
		case errors.Is(err, unix.EBUSY):
			c.Action, c.Reason = kept, value.Bytes("in use by perf or a BPF program")
		case err != nil:
			c.Action, c.Reason = "failed", value.Bytes(err.Error())
			r.failed++
		}
	}
	r.rows = append(r.rows, c)
}

// firstEntry returns an entry of the trace buffer. The kernel formats entries as they are read, and a
// full buffer takes minutes.
func (r *resetter) firstEntry() string {
	f, err := os.Open(filepath.Join(r.dir, buffer))
	if err != nil {
		return ""
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		if text := contents(in.Text()); text != "" {
			return text
		}
	}
	return ""
}

func (r *resetter) read(file string) string {
	text, err := os.ReadFile(filepath.Join(r.dir, file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // a file that the kernel does not have is empty
		r.rows = append(r.rows, row{Action: "unreadable", File: file, Reason: value.Bytes(err.Error())})
	}
	return string(text)
}

func (r *resetter) write(file, text string) error {
	return r.open(file, text, os.O_WRONLY)
}

func (r *resetter) append(file, text string) error {
	return r.open(file, text, os.O_WRONLY|os.O_APPEND)
}

func (r *resetter) truncate(file string) error { return r.open(file, "", os.O_WRONLY|os.O_TRUNC) }

func (r *resetter) open(file, text string, how int) error {
	f, err := os.OpenFile(filepath.Join(r.dir, file), how, 0)
	if err != nil {
		return err
	}
	if text != "" {
		_, err = f.WriteString(text + "\n")
	}
	return errors.Join(err, f.Close())
}

// contents returns the lines of a file without comments.
func contents(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// summary returns the first line, and the number of lines if there are more.
func summary(text string) value.Bytes {
	first, rest, more := strings.Cut(text, "\n")
	if more {
		first += fmt.Sprintf(" (%d lines)", 2+strings.Count(rest, "\n"))
	}
	return value.Bytes(first)
}

// lockFile is the lock of perf-tools, with the PID of the tracer.
const lockFile = "/var/tmp/.ftrace-lock"

// lockHolder returns the PID of the living process that a lock file names, or 0. Every user can create
// the file: one that is not regular, such as a FIFO, or has no number is ignored.
func lockHolder(lock, proc string) uint64 {
	const longest = 32 // bytes
	text, err := limit.ReadFile(lock, longest)
	if err != nil {
		return 0
	}
	pid, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 31)
	if err != nil {
		return 0
	}
	if _, err := os.Stat(filepath.Join(proc, strconv.FormatUint(pid, 10))); err != nil {
		return 0
	}
	return pid
}

// findUser returns why a living process seems to trace, or "".
func findUser(dir, proc string) (string, error) {
	if pid := lockHolder(lockFile, proc); pid != 0 {
		return fmt.Sprintf("process %d holds %s", pid, lockFile), nil
	}
	var own unix.Stat_t
	if err := unix.Stat(dir, &own); err != nil {
		return "", fmt.Errorf("stat tracefs: %w", err)
	}
	links, err := filepath.Glob(filepath.Join(proc, "[0-9]*/fd/*"))
	if err != nil {
		return "", fmt.Errorf("list open files: %w", err)
	}
	for _, link := range links {
		path, err := os.Readlink(link)
		if err != nil || !strings.Contains(path, "/") || strings.HasPrefix(filepath.Base(path), "trace_marker") || filepath.Base(path) == filepath.Base(dir) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(link, &st); errors.Is(err, fs.ErrNotExist) || err != nil || st.Dev != own.Dev || isInstance(path) != isInstance(dir) {
			continue
		}
		pid := strings.Split(strings.TrimPrefix(link, proc+"/"), "/")[0]
		return fmt.Sprintf("process %s has opened %s", pid, path), nil
	}
	return "", nil
}

func isInstance(path string) bool { return strings.Contains(path, "/instances/") }
