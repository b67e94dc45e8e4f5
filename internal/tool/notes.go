package tool

import (
	"bytes"
	"io"
)

// Messages writes to standard error. While a table is drawn on the terminal, it buffers the lines.
type Messages struct {
	Out     io.Writer
	held    bool
	pending bytes.Buffer
	last    string // the last buffered line
}

// Write writes or buffers a line.
func (m *Messages) Write(b []byte) (int, error) {
	if !m.held {
		return m.Out.Write(b)
	}
	m.last = string(bytes.TrimSpace(b))
	return m.pending.Write(b)
}

// Hold buffers all lines until [Messages.Release].
func (m *Messages) Hold() { m.held = true }

// LastHeld returns the last buffered line, or "".
func (m *Messages) LastHeld() string { return m.last }

// Forget makes LastHeld return "" until the next line. Release still writes the forgotten line.
func (m *Messages) Forget() { m.last = "" }

// Release writes the buffered lines and ends the buffering.
func (m *Messages) Release() {
	m.held = false
	m.pending.WriteTo(m.Out)
}
