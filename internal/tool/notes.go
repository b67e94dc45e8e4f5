package tool

import (
	"bytes"
	"io"
)

// Messages writes to standard error, and holds lines back while a screen is on the terminal.
type Messages struct {
	Out  io.Writer
	held bool
	kept bytes.Buffer
	last string // the last line that was held back
}

// Write writes b, or keeps it for later.
func (n *Messages) Write(b []byte) (int, error) {
	if !n.held {
		return n.Out.Write(b)
	}
	n.last = string(bytes.TrimSpace(b))
	return n.kept.Write(b)
}

// Hold holds back all lines until [Messages.release].
func (n *Messages) Hold() { n.held = true }

// LastHeld is the last line that was held back, or "".
func (n *Messages) LastHeld() string { return n.last }

// Forget has lastHeld return "" until the next line; the line is still written in the end.
func (n *Messages) Forget() { n.last = "" }

// Release writes what was held back.
func (n *Messages) Release() {
	n.held = false
	n.kept.WriteTo(n.Out)
}
