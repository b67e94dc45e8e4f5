package tool

import (
	"bytes"
	"io"
)

// notes is standard error, which is held back while a screen is on the terminal.
type notes struct {
	out  io.Writer
	held bool
	kept bytes.Buffer
	last string // the last line that was held back
}

// Write writes b, or keeps it for later.
func (n *notes) Write(b []byte) (int, error) {
	if !n.held {
		return n.out.Write(b)
	}
	n.last = string(bytes.TrimSpace(b))
	return n.kept.Write(b)
}

// release writes what was held back.
func (n *notes) release() {
	n.held = false
	n.kept.WriteTo(n.out)
}
