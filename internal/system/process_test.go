package system

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProcessOf(t *testing.T) {
	own := uint32(os.Getpid())
	if pid, err := ProcessOf("/", own); pid != own || err != nil {
		t.Errorf("ProcessOf(%d) = %d, %v, want %d", own, pid, err, own)
	}
	tids := make(chan uint32)
	end := make(chan struct{})
	go func() {
		defer close(tids)
		tids <- uint32(unix.Gettid())
		<-end
	}()
	tid := <-tids
	if pid, err := ProcessOf("/", tid); pid != own || err != nil {
		t.Errorf("ProcessOf thread %d = %d, %v, want %d", tid, pid, err, own)
	}
	close(end)
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if pid, err := ProcessOf("/", uint32(cmd.Process.Pid)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ProcessOf(%d), which has exited = %d, %v, want %v", cmd.Process.Pid, pid, err, fs.ErrNotExist)
	}
}

// TestProcessOfHidden looks up a process that exists but is hidden in /proc (hidepid=2).
func TestProcessOfHidden(t *testing.T) {
	own := uint32(os.Getpid())
	if pid, err := ProcessOf(t.TempDir(), own); pid != own || err != nil {
		t.Errorf("ProcessOf(%d) = %d, %v, want %d", own, pid, err, own)
	}
}

func TestInCPUList(t *testing.T) {
	for cpu, want := range map[int64]bool{-1: false, 0: true, 3: true, 4: false, 6: true, 7: false, 10: true, 11: false} {
		if got := InCPUList("0-3,6,8-10", cpu); got != want {
			t.Errorf("CPU %d: %v, want %v", cpu, got, want)
		}
	}
	if InCPUList("", 0) {
		t.Error("InCPUList of an empty list is true for CPU 0")
	}
	online, err := OnlineCPUs("/")
	if err != nil || online == "" {
		t.Errorf("online CPUs %q, %v, want at least one", online, err)
	}
}
