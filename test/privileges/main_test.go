// Package privileges tests which capabilities tools need, and which they drop: each tool runs as a
// process of an unprivileged user who has exactly the capabilities that its manual lists.
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

// Environment variables: the first makes this test binary run corescope, the second lists
// directories to hide, in a mount namespace that the test has created.
const (
	asProgram = "TEST_AS_CORESCOPE"
	hidden    = "TEST_HIDDEN"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) == "" {
		flag.Parse()
		// Most of the time the tools wait for the kernel to attach and detach their programs.
		if err := flag.Set("test.parallel", "8"); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	for _, dir := range strings.Fields(os.Getenv(hidden)) {
		for unix.Unmount(dir, unix.MNT_DETACH) == nil { // also removes tracefs from /proc/self/mountinfo
		}
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

// program returns a command that runs corescope as nobody with these capabilities or, if root is
// set, as root. Its path is a link in /proc, because nobody cannot access the directory of the test
// binary.
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

// deadline is the time after which a tool that is not ready, or does not exit, is aborted; no check
// depends on it.
const deadline = 3 * time.Minute

// run runs a tool. When it is ready, run calls load with its PID, and interrupts the tool when load
// returns. It returns the lines that the tool printed.
func run(t *testing.T, capabilities system.Capabilities, root bool, load func(pid int), args ...string) []tooltest.Row {
	t.Helper()
	return runSeeing(t, capabilities, root, func(pid int, _ func() []tooltest.Row) { load(pid) }, args...)
}

// runSeeing is like run, for a load that waits for output: printed returns the lines so far.
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
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // prints the goroutines
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var loading sync.WaitGroup // a list can exit before load returns
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
		t.Fatalf("%q with %v, %d lines of output: %v: %s", args, capabilities, len(lines), err, &stderr)
	}
	return lines
}

// needsRoot skips the test for users that cannot give capabilities to other processes.
func needsRoot(t *testing.T) {
	t.Helper()
	tooltest.Root(t)
	held, err := system.Effective()
	if all := system.Set(system.CapBPF, system.CapPerfmon, system.CapSysAdmin); err != nil || held&all != all {
		t.Skipf("has only the capabilities %v, %v", held, err)
	}
}
