package probe

import (
	"runtime"
	"testing"
)

// grow uses enough of the stack that it is copied to another place.
func grow(n int) int {
	var room [1024]byte
	if n == 0 {
		return int(room[n])
	}
	return grow(n-1) + int(room[n])
}

// What the kernel is given refers to the process's id also when the stack has moved and the
// garbage collector has run since.
func TestTaskIterAttrSurvivesMoves(t *testing.T) {
	for pid := range uint32(100) {
		done := make(chan uint32)
		go func() {
			attr := newTaskIterAttr(3, pid)
			grow(200)
			runtime.GC()
			done <- attr.info.pid
		}()
		if got := <-done; got != pid {
			t.Fatalf("process %d, want %d", got, pid)
		}
	}
}
