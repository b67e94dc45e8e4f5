package system

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseTimes(t *testing.T) {
	const fields = " R 1 2 3 4 5 6 7 8 9 10 70 30 13 14 15 16 17 18 1234 20\n"
	for _, name := range []string{"(sh)", "(a b)", "() 1 2)", "(\n)"} {
		used, start, ok := parseTimes([]byte("17 " + name + fields))
		if !ok || used != 100 || start != 1234 {
			t.Errorf("%q: used %d, started at %d, %t", name, used, start, ok)
		}
	}
	for _, text := range []string{"", "17 (sh)", "17 (sh) R 1 2", "17 (sh) R a b c d e f g h i j k l m n o p q r s t"} {
		if _, _, ok := parseTimes([]byte(text)); ok {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestCPUs compares a process that has used a CPU with one that has not.
func TestCPUs(t *testing.T) {
	idle := exec.Command("sleep", "1000")
	if err := idle.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		idle.Process.Kill()
		idle.Wait()
	})
	var used unix.Timespec
	for used.Nano() < int64(100*time.Millisecond) { // ten times the resolution
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used); err != nil {
			t.Fatal(err)
		}
	}
	if own, other := CPUs("/", uint32(os.Getpid())), CPUs("/", uint32(idle.Process.Pid)); own <= 0 || other >= own {
		t.Errorf("this process uses %.3f CPUs, an idle one %.3f", own, other)
	}
	if got := CPUs(t.TempDir(), 1); got != 0 {
		t.Errorf("a process that does not exist uses %.3f CPUs", got)
	}
}
