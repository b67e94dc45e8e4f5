package resettrace

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLockHolder reads lock files that any user can create. A FIFO must not block the tool.
func TestLockHolder(t *testing.T) {
	own := uint64(os.Getpid())
	for text, want := range map[string]uint64{
		strconv.FormatUint(own, 10) + "\n": own, "": 0, "\n": 0, ".": 0, "self": 0, "../proc": 0, "4194305": 0, "-1": 0,
		strings.Repeat("1", 1<<20): 0,
	} {
		lock := filepath.Join(t.TempDir(), "lock")
		if err := os.WriteFile(lock, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lockHolder(lock, "/proc"); got != want {
			t.Errorf("lock file with %.20q: process %d, want %d", text, got, want)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero", t.TempDir(), "/absent"} {
		if got := lockHolder(path, "/proc"); got != 0 {
			t.Errorf("%s: process %d, want none", path, got)
		}
	}
}
