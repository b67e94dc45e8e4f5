package tooltest

import (
	"os"
	"testing"
	"time"
)

// TestIsHidden expects that this process, which runs often, is not hidden.
func TestIsHidden(t *testing.T) {
	Root(t)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				time.Sleep(time.Millisecond) // each sleep is a context switch
			}
		}
	}()
	if hidden, err := isHidden(os.Getpid(), deadline); hidden || err != nil {
		t.Errorf("isHidden of this process: %v, %v, want false", hidden, err)
	}
}

// TestHidesProcess1 expects that process 1 counts as hidden only if its files in /proc are hidden
// too.
func TestHidesProcess1(t *testing.T) {
	Root(t)
	_, err := os.Readlink("/proc/1/exe")
	t.Logf("process 1 is hidden: %v; read /proc/1/exe: %v", HidesProcess1(), err)
	if err == nil && HidesProcess1() {
		t.Error("process 1 counts as hidden, but /proc/1/exe is readable")
	}
}
