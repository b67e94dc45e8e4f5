package resettrace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tooltest"
)

// instance creates an instance of tracefs, which no other process uses, and returns its directory.
func instance(t *testing.T) (name, dir string) {
	t.Helper()
	tooltest.Tracefs(t)
	root, err := (&target.Finder{}).TracingDir()
	if err != nil {
		t.Fatal(err)
	}
	name = fmt.Sprintf("reset-%s-%d", strings.ToLower(t.Name()), os.Getpid())
	dir = filepath.Join(root, "instances", name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return name, dir
}

// dirty changes settings of an instance, and returns the changed files. The PID is the last one:
// until 5.15 set_event_pid accepts only PIDs below pid_max, by default 32768.
func dirty(t *testing.T, dir string) map[string]string {
	t.Helper()
	limit, err := strconv.Atoi(text(t, "/proc/sys/kernel", "pid_max"))
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{}
	for file, text := range map[string]string{
		"tracing_on": "0", "set_event": "sched:sched_switch", "options/stacktrace": "1",
		"events/sched/sched_waking/filter": "pid == 4000000", "set_event_pid": strconv.Itoa(limit - 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
		changed[file] = text
	}
	return changed
}

func text(t *testing.T, dir, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return contents(string(data))
}

// actions returns the actions by file, without files that the kernel hides (lockdown).
func actions(dir string, rows []tooltest.Row) map[string]string {
	all := map[string]string{}
	for _, r := range rows {
		if _, err := os.ReadFile(filepath.Join(dir, r.Str("file"))); r.Str("action") == "unreadable" && err != nil {
			continue
		}
		all[r.Str("file")] = r.Str("action")
	}
	return all
}

// TestSettings checks the rows, and the files afterwards, without and with -F.
func TestSettings(t *testing.T) {
	name, dir := instance(t)
	changed := dirty(t, dir)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "kept"}, {[]string{"-F", "--dry-run"}, "would reset"}, {[]string{"-F"}, "reset"},
	} {
		got := actions(dir, tooltest.JSON(t, Tool, append(c.args, "--instance", name), nil).Events)
		for file, set := range changed {
			if got[file] != c.want {
				t.Errorf("%q: %s is %s, want %s", c.args, file, got[file], c.want)
			}
			if now := text(t, dir, file); (now == set) != (c.want != "reset") {
				t.Errorf("%q: %s contains %s", c.args, file, now)
			}
		}
	}
	if got := actions(dir, tooltest.JSON(t, Tool, []string{"-F", "--instance", name}, nil).Events); len(got) != 0 {
		t.Errorf("after the reset: %v", got)
	}
}

// TestUser checks that nothing is reset while a process has opened a file of the instance.
func TestUser(t *testing.T) {
	name, dir := instance(t)
	if err := os.WriteFile(filepath.Join(dir, "trace_marker"), []byte("entry"), 0); err != nil {
		t.Skipf("the instance has no trace_marker: %v", err)
	}
	pipe, err := os.Open(filepath.Join(dir, "trace_pipe"))
	if err != nil {
		t.Fatal(err)
	}
	rows := tooltest.JSON(t, Tool, []string{"--instance", name}, nil).Events
	pipe.Close()
	rows = slices.DeleteFunc(rows, func(r tooltest.Row) bool { return r.Str("file") != "trace" })
	if len(rows) != 1 || rows[0].Str("action") != "kept" || !strings.Contains(rows[0].Str("reason"), fmt.Sprintf("process %d has opened", os.Getpid())) {
		t.Errorf("with an open trace_pipe: %v", rows)
	}
	if got := actions(dir, tooltest.JSON(t, Tool, []string{"--instance", name}, nil).Events); got["trace"] != "reset" || text(t, dir, "trace") != "" {
		t.Errorf("without: %v, the buffer contains %q", got, text(t, dir, "trace"))
	}
}

// TestProbes removes a uprobe that nobody uses, and keeps one whose name has the PID of a living
// process.
func TestProbes(t *testing.T) {
	tooltest.Tracefs(t)
	dir, err := (&target.Finder{}).TracingDir()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "uprobe_events")
	if _, err := os.Stat(file); err != nil {
		t.Skipf("the kernel has no uprobes (CONFIG_UPROBE_EVENTS): %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unused, used := fmt.Sprintf("reset_unused_%d", os.Getpid()), fmt.Sprintf("reset_bcc_%d", os.Getpid())
	events, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, []byte("-:uprobes/"+used+"\n"), 0) })
	for _, name := range []string{unused, used} {
		if _, err := fmt.Fprintf(events, "p:uprobes/%s %s:0x1000\n", name, self); err != nil {
			t.Fatal(err)
		}
	}
	if err := events.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ flag, want string }{{"--dry-run", "would remove"}, {"--limit=1000000", "removed"}} {
		found := map[string]string{}
		for _, r := range tooltest.JSON(t, Tool, []string{c.flag, "uprobe_events"}, nil).Events {
			for _, name := range []string{unused, used} {
				if strings.Contains(r.Str("value"), name) {
					found[name] = r.Str("action")
				}
			}
		}
		if found[unused] != c.want || found[used] != "kept" {
			t.Errorf("%s: %v", c.flag, found)
		}
	}
	now, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(now), unused) || !strings.Contains(string(now), used) {
		t.Errorf("uprobe_events contains %s", now)
	}
}

func TestUsage(t *testing.T) {
	tooltest.Tracefs(t)
	tooltest.Fails(t, Tool, []string{"--instance", "no-such-instance"}, 2, "no-such-instance")
	tooltest.Fails(t, Tool, []string{"--instance", "../.."}, 2, "must be a name")
	tooltest.Fails(t, Tool, []string{"buffer_size_kb"}, 2, "not a file that is reset")
}

// TestQuiet checks that -q resets without a row.
func TestQuiet(t *testing.T) {
	name, dir := instance(t)
	dirty(t, dir)
	if out := tooltest.Text(t, Tool, []string{"-q", "-F", "--instance", name}, nil); strings.TrimSpace(out) != "" {
		t.Errorf("output %q", out)
	}
	if now := text(t, dir, "tracing_on"); now != "1" {
		t.Errorf("tracing_on is %s", now)
	}
}
