package documents

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/corescope/corescope/docs/symptoms"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// find returns the tool of a command line without "corescope", and its arguments. PID becomes the ID of
// the process. The tool is nil if the first word does not name one.
func find(command string, pid int) (*tool.Tool, []string) {
	name, _, _ := strings.Cut(command, " ")
	for _, t := range tools.All() {
		if named := t.As(name); named != nil {
			args := tool.ExampleArgs(command)
			for i, arg := range args {
				if arg == "PID" {
					args[i] = strconv.Itoa(pid)
				}
			}
			return named, args
		}
	}
	return nil, nil
}

// sleeper starts a process that does nothing until the test ends.
func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// execute runs a command until it is ready, so that it does not depend on the speed of the machine how
// long it takes. It fails the test unless the command succeeds.
func execute(t *testing.T, tl *tool.Tool, args []string) {
	t.Helper()
	code, errOut := untilReady(t, tl, args)
	if code == tool.ExitUnsupported {
		// The kernel lacks a hook. --explain must say so too.
		if explained, text := untilReady(t, tl, append([]string{"--explain"}, args...)); explained == tool.ExitUnsupported || strings.Contains(text, "not supported") {
			t.Skipf("not supported by this kernel: %s", errOut)
		}
	}
	if code != tool.ExitOK {
		t.Errorf("%s %q: exit code %d: %s", tl.Name, args, code, errOut)
	}
}

func untilReady(t *testing.T, tl *tool.Tool, args []string) (code int, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	w := &watcher{cancel: cancel}
	var out bytes.Buffer
	code = tool.Run(ctx, tl, args, io.MultiWriter(&out, w), w)
	return code, w.String() + out.String()
}

// watcher collects messages, and cancels the run when it is ready.
type watcher struct {
	mu     sync.Mutex
	b      bytes.Buffer
	cancel context.CancelFunc
}

func (w *watcher) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.b.Write(b)
	if bytes.Contains(w.b.Bytes(), []byte(": ready: ")) || bytes.Contains(w.b.Bytes(), []byte(`"type":"ready"`)) {
		w.cancel()
	}
	return len(b), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

// TestSymptoms runs each command whose output the pages show.
func TestSymptoms(t *testing.T) {
	tooltest.Root(t)
	pid := sleeper(t)
	for _, p := range symptoms.All() {
		for _, command := range p.Commands() {
			t.Run(p.Name+"/"+command, func(t *testing.T) {
				tl, args := find(command, pid)
				if tl == nil {
					t.Fatalf("there is no tool for %s", command)
				}
				execute(t, tl, args)
			})
		}
	}
}

// TestSymptomOutput compares the output in the pages with the header that the commands print.
func TestSymptomOutput(t *testing.T) {
	for _, p := range symptoms.All() {
		for _, command := range p.Commands() {
			tl, args := find(command, os.Getpid())
			if tl == nil {
				t.Errorf("%s: there is no tool for %s", p.Name, command)
				continue
			}
			header, err := tl.Header(args...)
			if err != nil {
				t.Errorf("%s: %s: %v", p.Name, command, err)
				continue
			}
			_, output, _ := strings.Cut(p.Markdown, "\n$ corescope "+command+"\n")
			output, _, _ = strings.Cut(output, "\n```")
			output, _, _ = strings.Cut(output, "\n$ ")
			if output == "" || !strings.Contains(strings.Join(strings.Fields(output), " "), header) {
				t.Errorf("%s: the output of %s has no line %q:\n%s", p.Name, command, header, output)
			}
		}
	}
}

// inline returns the commands in backquotes of a Markdown text that begin with the name of a tool, with or
// without "corescope", and have arguments.
func inline(text string) (commands []string) {
	for _, m := range regexp.MustCompile("`(?:corescope )?([a-z_]+ [^`\n]+)`").FindAllStringSubmatch(text, -1) {
		if tl, _ := find(m[1], 0); tl != nil && !strings.Contains(m[1], "…") {
			commands = append(commands, m[1])
		}
	}
	return commands
}

// TestInline checks that the commands in the text of the pages are valid.
func TestInline(t *testing.T) {
	n := 0
	for _, p := range symptoms.All() {
		for _, command := range inline(p.Markdown) {
			tl, args := find(command, os.Getpid())
			n++
			if _, err := tl.Header(args...); err != nil {
				t.Errorf("%s: %s: %v", p.Name, command, err)
			}
		}
	}
	if n < 10 {
		t.Errorf("the pages have only %d commands in their text", n)
	}
}

// TestWatcher checks that a command that cannot succeed fails.
func TestWatcher(t *testing.T) {
	tl, args := find("opensnoop --no-such-flag", 0)
	if code, text := untilReady(t, tl, args); code != tool.ExitUsage || !strings.Contains(text, "no-such-flag") {
		t.Errorf("exit code %d: %s", code, text)
	}
	if got := fmt.Sprint(inline("`opensnoop -F`, `corescope runqlat 1` and `ls -l`")); got != "[opensnoop -F runqlat 1]" {
		t.Errorf("commands are %s", got)
	}
}
