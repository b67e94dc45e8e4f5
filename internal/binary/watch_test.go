package binary

import (
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// TestWatchSync has the mappings of a process that has ended told by the time that Sync
// returns, and Sync return after the end of Run too.
func TestWatchSync(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var told sync.Map
	ended := make(chan error)
	go func() {
		ended <- w.Run(func(m *Mapped) {
			time.Sleep(5 * time.Millisecond) // who does not wait for Sync is too early
			told.Store(m.PID, true)
		}, func() {})
	}()
	for range 10 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		if _, ok := told.Load(uint32(cmd.Process.Pid)); !ok {
			t.Errorf("nothing was told of %d", cmd.Process.Pid)
		}
	}
	if err := w.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(); err != nil {
		t.Error(err)
	}
}
