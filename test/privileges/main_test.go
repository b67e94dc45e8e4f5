// Package privileges has live tests of what tools need, and of what they give up: each
// runs in a process of its own, as a user who has just the capabilities of its manual.
package privileges

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/command"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// Variables of the environment: the first makes this test binary corescope, the second
// lists directories that it hides, in a mount namespace that the test has given it.
const (
	asProgram = "TEST_AS_CORESCOPE"
	hidden    = "TEST_HIDDEN"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		flag.Parse()
		// Tools mostly wait here, for the kernel to attach and detach their programs.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	for _, dir := range strings.Fields(os.Getenv(hidden)) {
		if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
			fmt.Fprintln(os.Stderr, "hide", dir, err)
			os.Exit(-1)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := command.Command{Tools: tools.All(), Version: "test", Out: os.Stdout, Err: os.Stderr}
	os.Exit(c.Run(ctx, os.Args))
}

const nobody = 65534

// program returns corescope, run as nobody with these capabilities, or as root with all
// if there are none. It is found by a link of /proc, as nobody may not look into the
// folder of a test binary.
func program(ctx context.Context, capabilities system.Capabilities, root bool, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Args[0] = "corescope"
	cmd.Env = append(os.Environ(), asProgram+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if root {
		return cmd
	}
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	for c := range capabilities.All() {
		cmd.SysProcAttr.AmbientCaps = append(cmd.SysProcAttr.AmbientCaps, uintptr(c))
	}
	return cmd
}

// deadline bounds a tool that does not get ready, or does not end; it judges nothing.
const deadline = 3 * time.Minute

// run runs a tool until load is over, which is called when the tool is ready, with its
// process. It returns the lines that the tool printed.
func run(t *testing.T, capabilities system.Capabilities, root bool, load func(pid int), args ...string) []tooltest.Row {
	t.Helper()
	return runSeeing(t, capabilities, root, func(pid int, _ func() []tooltest.Row) { load(pid) }, args...)
}

// runSeeing is run for a load that waits for what the tool prints: printed returns the lines
// so far.
func runSeeing(t *testing.T, capabilities system.Capabilities, root bool,
	load func(pid int, printed func() []tooltest.Row), args ...string,
) []tooltest.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	args = append(args, "--output", "json")
	cmd := program(ctx, capabilities, root, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // says where it hangs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var loading sync.WaitGroup // a list may be over before it
	defer loading.Wait()
	var lines []tooltest.Row
	var mu sync.Mutex // guards lines
	printed := func() []tooltest.Row {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(lines)
	}
	for in := bufio.NewReader(out); ; {
		text, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var line tooltest.Row
		if err := json.Unmarshal(text, &line); err != nil {
			t.Errorf("%v: %s", err, text)
		}
		mu.Lock()
		lines = append(lines, line)
		mu.Unlock()
		if line.Str("type") == "ready" {
			loading.Go(func() {
				load(cmd.Process.Pid, printed)
				cmd.Process.Signal(os.Interrupt)
			})
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%q with %v, of which %d lines were read: %v: %s", args, capabilities, len(lines), err, &stderr)
	}
	return lines
}

// needsRoot skips the test for who cannot give capabilities to others.
func needsRoot(t *testing.T) {
	t.Helper()
	tooltest.Root(t)
	held, err := system.Effective()
	if all := system.Set(system.CapBPF, system.CapPerfmon, system.CapSysAdmin); err != nil || held&all != all {
		t.Skipf("has only %v to give, %v", held, err)
	}
}
