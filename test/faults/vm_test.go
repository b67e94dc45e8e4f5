package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// ownMachine skips the test on machines that are used for anything else, because the test changes
// system-wide state.
func ownMachine(t *testing.T) {
	t.Helper()
	tooltest.Root(t)
	if init, err := os.Readlink("/proc/1/exe"); err != nil || init != "/init" {
		t.Skipf("the test changes system-wide state and process 1 is %q: "+
			"run it in a virtual machine (TOOLS=faults make test-kernels)", init)
	}
}

// oneByOne runs test for one tool after the other; if perf is set, tools that send events are also
// tested with perf buffers.
func oneByOne(t *testing.T, perf bool, test func(s *subject)) {
	t.Helper()
	run := func(name string, tl *tool.Tool, perf bool) {
		t.Run(name, func(t *testing.T) { test(newSubject(t, tl, perf)) })
	}
	for _, tl := range tools.All() {
		run(tl.Name, tl, false)
		if perf && sendsEvents(t, tl) {
			run(tl.Name+" perf", tl, true)
		}
	}
}

// cpu is the first CPU that can be taken offline. last is the last such CPU, or the same: if it
// differs, the numbers of online CPUs have a gap while the first one is offline.
type cpu struct{ number, last int }

func findCPU(t *testing.T) cpu {
	t.Helper()
	all, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/online")
	if err != nil {
		t.Fatal(err)
	}
	var numbers []int
	for _, file := range all {
		n, _ := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "cpu"))
		if n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	if len(numbers) == 0 {
		t.Skip("no CPU can be taken offline")
	}
	c := cpu{numbers[0], numbers[len(numbers)-1]}
	t.Cleanup(func() { c.set(t, true) })
	return c
}

func (c cpu) set(t testing.TB, online bool) {
	t.Helper()
	file := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/online", c.number)
	val := "0"
	if online {
		val = "1"
	}
	if now, _ := os.ReadFile(file); strings.TrimSpace(string(now)) == val {
		return
	}
	if err := os.WriteFile(file, []byte(val), 0); err != nil {
		t.Fatal(err)
	}
}

// on executes the usual job on a CPU.
func (s *subject) on(cpu int) happened {
	s.Helper()
	all := s.does("pin", cpu)
	all.add(s.usual())
	return all
}

// The job runs several times on a CPU that came online, with a gap between: long enough for the
// kernel's notification to reach the tool.
const (
	rounds = 4
	gap    = 100 * time.Millisecond
)

// arrived executes jobs on a CPU that has just come online.
func (s *subject) arrived(cpu int) (all happened) {
	s.Helper()
	for range rounds {
		all.add(s.on(cpu))
		time.Sleep(gap)
	}
	return all
}

// checkArrived fails the test if more was lost than the events sent before the CPU had a buffer.
func (s *subject) checkArrived(r *run, on happened) {
	s.Helper()
	s.Logf("%d rows, %d lost of %d on the CPU that came online", r.rows, r.losses(), on.n)
	if r.losses() > on.n/2 {
		s.Errorf("%d lost: the CPU got no buffer", r.losses())
	}
}

// TestCPUs starts the tool while that CPU is offline, takes the CPU online, takes it
// offline while the load is pinned to it, and takes it online again.
func TestCPUs(t *testing.T) {
	ownMachine(t)
	c := findCPU(t)
	oneByOne(t, true, func(s *subject) {
		c.set(s, false)
		r := s.command().start(s).await(s)
		all := s.on(0)
		if c.last != c.number {
			all.add(s.on(c.last))
		}
		var late happened
		for range 2 {
			c.set(s, true)
			late.add(s.arrived(c.number))
			c.set(s, false)
			all.add(s.usual())
		}
		all.add(late)
		r.stop(s).judge(s, all)
		s.checkArrived(r, late)
	})
}

const step = time.Hour

// TestClockStep sets the wall clock forward by an hour, and back. Durations must not change. Times
// must follow within a second.
func TestClockStep(t *testing.T) {
	ownMachine(t)
	oneByOne(t, false, func(s *subject) {
		r := s.command()
		r.keep = true
		r.start(s).await(s)
		all := s.usual()
		for _, by := range []time.Duration{step, -step} {
			setClock(s, time.Now().Round(0).Add(by))
			all.add(s.usual())
			time.Sleep(1200 * time.Millisecond)
			begin := time.Now().Round(0)
			all.add(s.usual())
			defer s.checkTimes(r, begin, time.Now().Round(0))
		}
		r.stop(s).judge(s, all)
		s.checkDurations(r)
	})
}

func setClock(t testing.TB, to time.Time) {
	t.Helper()
	ts := unix.NsecToTimespec(to.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		t.Fatal(err)
	}
}

// checkTimes counts the rows with times in an interval.
func (s *subject) checkTimes(r *run, begin, end time.Time) {
	s.Helper()
	n := 0
	for _, row := range r.seen {
		at, err := time.Parse(time.RFC3339Nano, row.Str("time"))
		if err != nil {
			s.Fatal(err)
		}
		if !at.Before(begin.Add(-gap)) && !at.After(end.Add(gap)) {
			n++
		}
	}
	if len(r.seen) > 0 && n < s.n && !s.isList() {
		s.Errorf("%d rows with times from %v to %v, want %d", n, begin, end, s.n)
	}
}

// checkDurations checks all columns in nanoseconds and the maximum of histograms against the time
// step.
func (s *subject) checkDurations(r *run) {
	s.Helper()
	for _, row := range r.seen {
		for key := range row {
			if ns := row.Num(key); strings.HasSuffix(key, "_ns") && (ns < 0 || ns > float64(step)/2) {
				s.Errorf("%s is %v", key, time.Duration(ns))
			}
		}
	}
	for _, h := range r.hists {
		ns, isTime := map[string]float64{"nsecs": 1, "usecs": 1e3}[h.Str("unit")]
		if greatest := h.Num("max") * ns; !isTime || greatest < 0 || greatest > float64(step)/2 {
			s.Errorf("the maximum is %v: %v", h.Num("max"), h)
		}
	}
}

// TestLockdown must run last, because lockdown cannot be reverted. In mode integrity all tools
// work; in mode confidentiality a tool works, or reports what the kernel refuses.
func TestLockdown(t *testing.T) {
	ownMachine(t)
	const dir, file = "/sys/kernel/security", "/sys/kernel/security/lockdown"
	if err := unix.Mount("securityfs", dir, "securityfs", 0, ""); err != nil && err != unix.EBUSY {
		t.Skipf("this kernel has no securityfs: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Skipf("this kernel has no lockdown: %v", err)
	}
	lock := func(mode string) {
		if err := os.WriteFile(file, []byte(mode), 0); err != nil {
			t.Fatal(err)
		}
	}
	lock("integrity")
	oneByOne(t, false, func(s *subject) { s.works(s.command()) })
	lock("confidentiality")
	t.Run("confidentiality", func(t *testing.T) {
		oneByOne(t, false, func(s *subject) {
			r := s.command().start(s)
			if r.isReady(s) {
				done := s.usual()
				r.stop(s).judge(s, done)
			} else {
				r.checkFailure(s, 4, "lockdown")
				s.Logf("%s", &r.stderr)
			}
		})
	})
}
