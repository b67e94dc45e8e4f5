package probe

import (
	"runtime"
	"testing"
)

// growStack needs so much stack that the runtime moves the stack.
func growStack(n int) int {
	var frame [1024]byte
	if n == 0 {
		return int(frame[n])
	}
	return growStack(n-1) + int(frame[n])
}

// TestTaskIterAttrSurvivesMoves checks that the attribute still refers to the PID after the stack
// has moved and the garbage collector has run.
func TestTaskIterAttrSurvivesMoves(t *testing.T) {
	for pid := range uint32(100) {
		done := make(chan uint32)
		go func() {
			attr := newTaskIterAttr(3, pid)
			growStack(200)
			runtime.GC()
			done <- attr.info.pid
		}()
		if got := <-done; got != pid {
			t.Fatalf("PID is %d, want %d", got, pid)
		}
	}
}
