package tooltest

import (
	"os"
	"testing"
	"time"
)

// The kernel does not hide this process, and it runs.
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
		t.Errorf("this process is hidden: %v, %v", hidden, err)
	}
}

// What the tests assume of process 1 is what its files show: a kernel that hides them runs no
// program in its context.
func TestHidesProcess1(t *testing.T) {
	Root(t)
	_, err := os.Readlink("/proc/1/exe")
	t.Logf("process 1 is hidden: %v; its program: %v", HidesProcess1(), err)
	if err == nil && HidesProcess1() {
		t.Error("process 1 is hidden, but its files are not")
	}
}
