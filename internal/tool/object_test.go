package tool

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
)

func TestObject(t *testing.T) {
	want := bytes.Repeat([]byte("an object "), 10_000)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(Object(b.Bytes()), 0, 1<<20))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %d bytes, want %d: %v", len(got), len(want), err)
	}
	for _, broken := range [][]byte{nil, b.Bytes()[:b.Len()-1], append([]byte("x"), b.Bytes()...)} {
		if _, err := Object(broken).ReadAt(make([]byte, 1), 0); err == nil {
			t.Errorf("no error for a broken object of %d bytes", len(broken))
		}
	}
}
