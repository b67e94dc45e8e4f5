package system

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// confined is an environment variable that makes this test binary call Confine.
const confined = "TEST_CONFINED"

// TestConfine checks every thread of a process that has called Confine: threads that existed before
// the call, and threads that were created after it.
func TestConfine(t *testing.T) {
	all, err := Effective()
	if err != nil || !all.Has(CapDACReadSearch) {
		t.Skipf("needs CAP_DAC_READ_SEARCH: %v", err)
	}
	if os.Getenv(confined) != "" {
		confineHere(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestConfine$", "-test.v")
	cmd.Env = append(os.Environ(), confined+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestConfine") {
		t.Errorf("run the test in a confined process: %v: %s", err, out)
	}
}

func confineHere(t *testing.T) {
	end := threads(4)
	keep := Set(CapDACReadSearch)
	usual, err := nice(0)
	if err != nil {
		t.Fatal(err)
	}
	left, err := Confine(keep | Set(63))
	if err != nil || left != keep {
		t.Fatalf("Confine: %v left, %v, want %v", left, err, keep)
	}
	defer threads(4)()
	defer end()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil || len(entries) < 9 {
		t.Fatalf("%d threads, %v, want at least 9", len(entries), err)
	}
	for _, e := range entries {
		status := threadStatus(t, "self/task/"+e.Name())
		for _, set := range []string{"CapEff", "CapPrm"} {
			if status[set] != hex(keep) {
				t.Errorf("%s of thread %s is %s, want %s", set, e.Name(), status[set], hex(keep))
			}
		}
		tid, _ := strconv.Atoi(e.Name())
		if has, err := nice(tid); err != nil || has != usual {
			t.Errorf("thread %d has the nice value %d, %v, want %d as before", tid, has, err, usual)
		}
		if status["NoNewPrivs"] != "1" || status["CapAmb"] != hex(0) || status["CapInh"] != hex(0) {
			t.Errorf("thread %s: %v, want NoNewPrivs 1, and CapAmb and CapInh 0", e.Name(), status)
		}
	}
	// A program that root executes gets no other capabilities either.
	out, err := exec.Command("/bin/cat", "/proc/self/status").Output()
	if want := fmt.Sprintf("CapEff:\t%s\n", hex(keep)); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("capabilities of cat: %v: %s, want %s", err, out, want)
	}
}

// threads creates n threads, which run until end is called.
func threads(n int) (end func()) {
	stop, started := make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			started <- struct{}{}
			<-stop
		}()
	}
	for range n {
		<-started
	}
	return func() { close(stop) }
}
