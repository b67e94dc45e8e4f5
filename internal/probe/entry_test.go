package probe

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/corescope/corescope/internal/binary"
)

// TestCheckEntry checks that an instruction that the kernel misreads is refused at its offset in a
// file.
func TestCheckEntry(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("not an x86-64 machine")
	}
	text := make([]byte, 64)
	copy(text[16:], []byte{0x62, 0xe2, 0x7d, 0x28, 0x7a, 0xce}) // vpbroadcastb %esi,%ymm17
	copy(text[32:], []byte{0xf3, 0x0f, 0x1e, 0xfa})             // endbr64
	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := binary.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := checkEntry(f, 16, "broadcast"); !errors.Is(err, ErrUnsafeEntry) {
		t.Errorf("entry with vpbroadcastb: %v, want %v", err, ErrUnsafeEntry)
	}
	if err := checkEntry(f, 32, "branch"); err != nil {
		t.Errorf("entry with endbr64: %v", err)
	}
}
