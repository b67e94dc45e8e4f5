package sslsniff

import (
	"bytes"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// TestBurst writes faster than rows are read: nothing must be lost of as many records as a download
// of 30 MB has.
func TestBurst(t *testing.T) {
	const n, size = 3737, 8192
	libs := open(t)
	buf := bytes.Repeat([]byte("x"), size)
	rows, summary := tooltest.File(t, Tool, self(), func() {
		for range n {
			libs["openssl"].Call("SSL_write", native.Call{Args: [7]uint64{1, native.Pointer(&buf[0]), size}, Ret: size})
		}
	})
	if rows != n || summary.Num("lost") != 0 {
		t.Errorf("%d rows of %d, summary %v", rows, n, summary)
	}
}
