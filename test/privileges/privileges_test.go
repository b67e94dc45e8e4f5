package privileges

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cilium/ebpf"

	machine "github.com/corescope/corescope/internal/doctor"
	"github.com/corescope/corescope/internal/document"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// plain returns the tools that run without arguments.
func plain() []*tool.Tool {
	return slices.DeleteFunc(tools.All(), (*tool.Tool).NeedsArguments)
}

// unsupportedHere returns the tools that do not run on this kernel even as root: they exit with 4,
// and state what is missing.
func unsupportedHere(t *testing.T) map[string]bool {
	t.Helper()
	unsupportedOnce.Do(func() {
		unsupported = map[string]bool{}
		report, _ := doctor(t, program(t.Context(), 0, true, "doctor", "--output", "json"))
		for _, s := range report.Tools {
			if s.ExitCode == tool.ExitUnsupported && s.Error != "" {
				unsupported[s.Name] = true
			}
		}
	})
	return unsupported
}

var (
	unsupportedOnce sync.Once
	unsupported     map[string]bool
)

// supported lists the tools of plain that this kernel supports for users with capabilities.
func supported(t *testing.T) []*tool.Tool {
	t.Helper()
	not := unsupportedHere(t)
	return slices.DeleteFunc(plain(), func(tl *tool.Tool) bool {
		return not[tl.Name] || tl.NoPrograms || tooltest.NeedsTracefs(t, tl)
	})
}

// A tool with the capabilities that its manual lists reports events.
func TestEnough(t *testing.T) {
	needsRoot(t)
	all := supported(t)
	some := tooltest.Representatives(t, all)
	for _, tl := range all {
		for _, c := range cases(t, tl, slices.Contains(some, tl)) {
			t.Run(strings.Join(c.args, " "), func(t *testing.T) {
				t.Parallel()
				lines := run(t, c.capabilities, false, func(int) { everything(t, samples(t, tl)) }, c.args...)
				if i := slices.IndexFunc(lines, isMine); i < 0 && !isQuiet(t, tl) {
					t.Errorf("with %v no row of this process in %d lines", c.capabilities, len(lines))
				}
				if last := lines[len(lines)-1]; last.Str("type") != "summary" {
					t.Errorf("the last line is %v", last)
				}
			})
		}
	}
}

// useCase is a command line with the capabilities that it needs.
type useCase struct {
	args         []string
	capabilities system.Capabilities
}

// cases returns a plain run of the tool, and runs with options that need more capabilities, or that
// need something after capabilities were dropped. Capabilities for options that are the same for all
// tools are tested with representatives only.
func cases(t *testing.T, tl *tool.Tool, isRepresentative bool) []useCase {
	t.Helper()
	facts, err := tl.Facts()
	if err != nil {
		t.Fatal(err)
	}
	needs := needs(tl)
	all := []useCase{{[]string{tl.Name}, needs}}
	if isRepresentative {
		all = append(all, useCase{[]string{tl.Name, "--stats"}, needs | system.Set(system.CapSysAdmin)})
	}
	if facts.Kind == "event" {
		all = append(all, useCase{[]string{tl.Name, "--columns", "all"}, needs})
		if isRepresentative {
			all = append(all, useCase{[]string{tl.Name, "--perf-buffer"}, needs | perfNeeds()})
		}
	}
	for _, flag := range []string{"active", "containers"} {
		if hasFlag(facts, flag) {
			all = append(all, useCase{[]string{tl.Name, "--" + flag}, needs})
		}
	}
	return all
}

// perfNeeds returns the capabilities for perf buffers. A value of kernel.perf_event_paranoid above
// 2, the default of Debian, also requires CAP_SYS_ADMIN.
func perfNeeds() system.Capabilities {
	all := system.Set(system.CapIPCLock)
	if n := machine.Read("/", "").PerfEventParanoid; n == nil || *n > 2 {
		all |= system.Set(system.CapSysAdmin)
	}
	return all
}

// needs returns the capabilities that the manual lists for a plain run on this kernel.
func needs(tl *tool.Tool) system.Capabilities {
	if memlock() {
		return tl.Needs() | system.Set(system.CapSysResource)
	}
	return tl.Needs()
}

func hasFlag(f *document.Tool, name string) bool {
	for _, g := range f.Flags {
		for _, flag := range g.Flags {
			if flag.Long == name {
				return true
			}
		}
	}
	return false
}

// memlock reports whether BPF maps count as locked memory, as before 5.11 (detected by a member of
// struct bpf_map).
func memlock() bool {
	counts := machine.Read("/", "").MemlockCounts
	return counts != nil && *counts
}

// isQuiet reports whether a tool may report nothing about the load: it observes certain programs or
// libraries, slow or loaded objects, objects that exist at the start, errors, or calls and events
// that the load does not cause.
func isQuiet(t *testing.T, tl *tool.Tool) bool {
	t.Helper()
	quiet := []string{
		"bpftop", "compactsnoop", "criticalstat", "dnssnoop", "drsnoop", "filegone", "fsnotifysnoop", "fsslower", "futexctn", "hardirqs", "klockstat",
		"mdflush", "mountsnoop", "numamove", "numasched", "oomkill", "ppchcalls", "readahead", "runqslower", "setuids", "shmsnoop", "sofdsnoop", "softirqslower",
		"syncsnoop", "tcpcong", "tcpdrop", "tcpretrans", "ttysnoop", "undump", "virtiostat", "wqlat", "writeback",
	}
	if slices.Contains(quiet, tl.Name) || isList(t, tl) {
		return true
	}
	for _, h := range facts(t, tl).Hooks {
		for _, v := range h.Variants {
			if v.Kind == "uprobe" || v.Kind == "usdt" || strings.HasPrefix(v.Where[0], "uprobe") {
				return true
			}
		}
	}
	return false
}

// isList reports whether a tool has no hooks, and thus ends by itself.
func isList(t *testing.T, tl *tool.Tool) bool {
	t.Helper()
	return len(facts(t, tl).Hooks) == 0
}

// samples reports whether a tool observes CPUs at intervals.
func samples(t *testing.T, tl *tool.Tool) bool {
	t.Helper()
	return slices.ContainsFunc(facts(t, tl).Hooks, func(h probe.Hook) bool {
		return slices.ContainsFunc(h.Variants, func(v probe.Variant) bool { return v.Kind == "perf" })
	})
}

func facts(t *testing.T, tl *tool.Tool) *document.Tool {
	t.Helper()
	f, err := tl.Facts()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// isMine reports whether a row was caused by this process or a child. Histograms and tables are not
// grouped by process; if they contain anything, the load can be in them.
func isMine(r tooltest.Row) bool {
	self := float64(os.Getpid())
	switch r.Str("type") {
	case "event":
		return r.Num("pid") == self || r.Num("ppid") == self
	case "histogram":
		return r.Num("count") > 0
	case "row":
		return true
	}
	return false
}

// A tool that lacks one of its capabilities fails with an error that names it.
func TestOneFewer(t *testing.T) {
	needsRoot(t)
	for _, tl := range supported(t) {
		for c := range tl.Needs().All() {
			if c != system.CapSysAdmin && tl.Needs().Has(system.CapSysAdmin) {
				continue // CAP_SYS_ADMIN includes the others
			}
			t.Run(fmt.Sprint(tl.Name, " without ", c), func(t *testing.T) {
				t.Parallel()
				fewer := tl.Needs() &^ system.Set(c)
				cmd := program(t.Context(), fewer, false, tl.Name, "--duration", "1ms")
				var stderr bytes.Buffer
				cmd.Stderr = &stderr
				err := cmd.Run()
				if code := cmd.ProcessState.ExitCode(); code != tool.ExitNotPermitted {
					t.Errorf("exit code %d, %v, want %d", code, err, tool.ExitNotPermitted)
				}
				want := fmt.Sprintf("(missing %s: run corescope as root, or with %s)\n", c, tl.Needs())
				lines := slices.Collect(strings.Lines(stderr.String()))
				isForeign := func(line string) bool { return !strings.HasPrefix(line, tl.Name+": ") }
				if !strings.HasSuffix(stderr.String(), want) || slices.ContainsFunc(lines, isForeign) {
					t.Errorf("standard error is %q, want lines of %s, the last of which ends with %q", &stderr, tl.Name, want)
				}
			})
		}
	}
}

// When a tool is ready, none of its threads has capabilities that the run no longer needs, also if
// it runs as root.
func TestGivenUp(t *testing.T) {
	needsRoot(t)
	needsOwnThreads(t)
	left := system.Capabilities(0)
	if bpfIsClosed(t) {
		left = system.Set(system.CapBPF)
	}
	names := left | system.Set(system.CapDACReadSearch)
	all := supported(t)
	some := tooltest.Representatives(t, all)
	for _, tl := range all {
		facts := facts(t, tl)
		if isList(t, tl) {
			continue
		}
		args := []string{tl.Name, "--columns", "+container"}
		if facts.Kind != "event" {
			args = []string{tl.Name, "--containers"}
		}
		t.Run(tl.Name, func(t *testing.T) {
			t.Parallel()
			own := left | facts.Keep
			if tl.Name == "oomkill" { // JSON has the names of cgroups by default
				own |= names
			}
			run(t, 0, true, func(pid int) { judge(t, pid, own) }, tl.Name)
			if !slices.Contains(some, tl) {
				return // users, buffers and columns of containers are the same for all tools
			}
			run(t, needs(tl), false, func(pid int) { judge(t, pid, left|facts.Keep&tl.Needs()) }, tl.Name)
			if facts.Kind == "event" {
				perf := own | system.Set(system.CapPerfmon, system.CapIPCLock) | perfNeeds()
				run(t, 0, true, func(pid int) { judge(t, pid, perf) }, tl.Name, "--perf-buffer")
			}
			if facts.Kind == "event" || hasFlag(facts, "containers") {
				run(t, 0, true, func(pid int) { judge(t, pid, names|facts.Keep) }, args...)
			}
		})
	}
}

// judge checks the capabilities of each thread of a process.
func judge(t *testing.T, pid int, left system.Capabilities) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Errorf("process %d has no threads: %v", pid, err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has exited
		}
		if err != nil {
			t.Error(err)
		}
		for _, want := range []string{
			fmt.Sprintf("CapInh:\t%016x\nCapPrm:\t%016x\nCapEff:\t%016x\n", 0, uint64(left), uint64(left)),
			fmt.Sprintf("CapAmb:\t%016x\nNoNewPrivs:\t1\n", 0),
		} {
			if !strings.Contains(string(status), want) {
				t.Errorf("%s has no %q: %s", thread, want, status)
			}
		}
	}
}

// bpfIsClosed reports whether this kernel refuses access to open maps to processes without
// capabilities.
func bpfIsClosed(t *testing.T) bool {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	return system.Try(0, func() error {
		var val uint32
		return m.Lookup(uint32(0), &val)
	}) != nil
}

// The manual of each tool lists the capabilities that these tests give to the tool.
func TestManualStates(t *testing.T) {
	for _, tl := range tools.All() {
		facts, err := tl.Facts()
		if err != nil {
			t.Fatal(err)
		}
		page := strings.Join(strings.Fields(facts.Manual().String()), " ")
		wants := []string{
			"PRIVILEGES Needs " + tl.Needs().String() + ", or root.",
			"--stats also needs CAP_SYS_ADMIN", "--perf-buffer also needs CAP_IPC_LOCK",
		}
		switch {
		case tl.Access != "":
			wants = []string{"PRIVILEGES Loads no BPF programs. " + tl.Access}
		case tl.NoPrograms:
			wants = []string{"PRIVILEGES Needs no capability: "}
		}
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("the manual of %s does not contain %q", tl.Name, want)
			}
		}
	}
}

// needsOwnThreads skips the test in binaries with cgo: there Go does not control all threads, so no
// capabilities are dropped. Releases are built without cgo.
func needsOwnThreads(t *testing.T) {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("the binary has no build information")
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" && s.Value == "1" {
			t.Skip("this binary is built with cgo: run CGO_ENABLED=0 go test")
		}
	}
}
