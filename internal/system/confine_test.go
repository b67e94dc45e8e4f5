package system

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// confined is a variable of the environment that has this test binary confine itself.
const confined = "TEST_CONFINED"

// TestConfine looks at every thread of a process that has confined itself, some of them
// older than that, some newer.
func TestConfine(t *testing.T) {
	all, err := Effective()
	if err != nil || !all.Has(CapDACReadSearch) {
		t.Skipf("has no capabilities to give up: %v", err)
	}
	if os.Getenv(confined) != "" {
		confineHere(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestConfine$", "-test.v")
	cmd.Env = append(os.Environ(), confined+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestConfine") {
		t.Errorf("confined: %v: %s", err, out)
	}
}

func confineHere(t *testing.T) {
	end := threads(4)
	keep := Set(CapDACReadSearch)
	left, err := Confine(keep | Set(63))
	if err != nil || left != keep {
		t.Fatalf("left is %v, %v", left, err)
	}
	defer threads(4)()
	defer end()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil || len(entries) < 9 {
		t.Fatalf("%d threads, %v", len(entries), err)
	}
	for _, e := range entries {
		status := threadStatus(t, "self/task/"+e.Name())
		for _, set := range []string{"CapEff", "CapPrm"} {
			if status[set] != hex(keep) {
				t.Errorf("%s of thread %s is %s", set, e.Name(), status[set])
			}
		}
		if status["NoNewPrivs"] != "1" || status["CapAmb"] != hex(0) || status["CapInh"] != hex(0) {
			t.Errorf("thread %s: %v", e.Name(), status)
		}
	}
	// What it executes has nothing either, though it is root's.
	out, err := exec.Command("/bin/cat", "/proc/self/status").Output()
	if want := fmt.Sprintf("CapEff:\t%s\n", hex(keep)); err != nil || !strings.Contains(string(out), want) {
		t.Errorf("cat has other capabilities than %s: %v: %s", want, err, out)
	}
}

// threads holds so many threads, until end is called.
func threads(n int) (end func()) {
	stop, there := make(chan struct{}), make(chan struct{})
	for range n {
		go func() {
			runtime.LockOSThread()
			there <- struct{}{}
			<-stop
		}()
	}
	for range n {
		<-there
	}
	return func() { close(stop) }
}
