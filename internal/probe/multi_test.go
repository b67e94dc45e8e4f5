package probe

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/corescope/corescope/internal/binary"
)

// TestByDoubt checks that entries which the kernel may refuse do not share a link with the others, and
// that those with the same instruction are adjacent, so that a link without them needs few attempts.
func TestByDoubt(t *testing.T) {
	const n, size = 1000, 16
	text := make([]byte, n*size)
	targets := make([]targetWithID, n)
	path := filepath.Join(t.TempDir(), "code")
	for i := range n {
		entry := []byte{0xf3, 0x0f, 0x1e, 0xfa} // endbr64
		switch i % 100 {
		case 7:
			entry = []byte{0xf0, 0xff, 0x0f} // lock decl (%rdi)
		case 50:
			entry = []byte{0xc5, 0xf9, 0x6e, 0xc6} // vmovd
		}
		copy(text[i*size:], entry)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := binary.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i := range targets {
		targets[i] = targetWithID{Target: Target{File: file, Offset: uint64(i * size)}, id: uint64(i)}
	}
	got := ""
	for _, part := range byDoubt([][]targetWithID{targets}) {
		got += fmt.Sprintf("%d from %d to %d; ", len(part), part[0].id, part[len(part)-1].id)
	}
	want := "980 from 0 to 999; 20 from 50 to 907; "
	if runtime.GOARCH != "amd64" {
		want = "1000 from 0 to 999; "
	}
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
