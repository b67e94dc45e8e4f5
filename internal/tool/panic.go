package tool

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic in a run of a [Stream], which ends only this run.
type PanicError struct {
	Value any
	// Stack is that of the goroutine, as of package debug.
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("internal error (please report it with the stack): panic: %v", e.Value)
}

// recovered turns a panic of the current goroutine into an error. It is deferred.
func recovered(err *error) {
	if v := recover(); v != nil {
		*err = &PanicError{v, debug.Stack()}
	}
}
