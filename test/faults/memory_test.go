package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// memory is a memory cgroup (v1 or v2).
type memory struct{ dir, usage, limit string }

func newMemory(t testing.TB, name string) *memory {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "cgroup" && strings.Contains(","+f[3]+",", ",memory,") {
			return &memory{tooltest.Cgroup(t, "memory", name), "memory.usage_in_bytes", "memory.limit_in_bytes"}
		}
	}
	dir := tooltest.Cgroup(t, "cgroup2", name)
	control := filepath.Join(filepath.Dir(dir), "cgroup.subtree_control")
	if err := os.WriteFile(control, []byte("+memory"), 0); err != nil {
		t.Skipf("the memory controller is not available: %v", err)
	}
	return &memory{dir, "memory.current", "memory.max"}
}

// enter returns a shell command that moves the shell to the cgroup.
func (m *memory) enter() string { return "echo $$ >" + filepath.Join(m.dir, "cgroup.procs") }

// used returns the memory in bytes that is charged to the cgroup, by processes and by BPF.
func (m *memory) used(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.dir, m.usage))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (m *memory) allow(t testing.TB, bytes int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, m.limit), []byte(strconv.Itoa(bytes)), 0); err != nil {
		t.Fatal(err)
	}
}

// TestMemory limits the tool, including its maps, to a part of the memory that it uses. The tool
// works, or fails with an error, or the kernel's OOM killer ends it. No object remains in the
// kernel.
func TestMemory(t *testing.T) {
	skipShort(t)
	newMemory(t, "faults") // skips the test without a memory controller
	const parts = 4
	var tools, refused atomic.Int32
	t.Cleanup(func() { // after all tools, which are tested at the same time
		if tools.Load() > 0 && refused.Load() == 0 {
			t.Error("no tool failed for lack of memory")
		}
	})
	eachTool(t, ownStart(t), func(s *subject) {
		tools.Add(1)
		use := s.usage()
		for part := 1; part < parts; part++ {
			m := newMemory(s, fmt.Sprintf("faults-%d-%d", s.pid, part))
			m.allow(s, use*part/parts)
			if s.starved(m) {
				refused.Add(1)
			}
		}
	})
}

// usage returns the memory in bytes that the tool uses when it is ready.
func (s *subject) usage() int {
	s.Helper()
	m := newMemory(s, fmt.Sprintf("faults-%d", s.pid))
	r := s.command().within(m.enter())
	goOn := s.startRunning(r)
	used := m.used(s)
	goOn()
	r.stop(s)
	return used
}

// starved reports whether the tool failed for lack of memory, with an error that says so.
func (s *subject) starved(m *memory) bool {
	s.Helper()
	r := s.command().within(m.enter()).start(s)
	if r.isReady(s) {
		h := heldBy(s, r.Process.Pid)
		done := s.usual()
		if !s.isList() {
			r.signal(s, unix.SIGINT)
		}
		if state := r.end(s); state.ExitCode() == 0 {
			r.judge(s, done)
		} else if !wasKilled(state) {
			s.Errorf("%v: %s", state, &r.stderr)
		}
		h.checkGone(s)
		return false
	}
	if wasKilled(r.end(s)) {
		return false
	}
	r.checkFailure(s, 1, "memory")
	return true
}

func wasKilled(state *os.ProcessState) bool {
	return state.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL
}
