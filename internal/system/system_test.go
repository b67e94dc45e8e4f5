package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tree creates a file tree and returns its root. A name that ends with "/" is a directory. Content
// that starts with "-> " is the target of a symbolic link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		add(t, root, name, text)
	}
	return root
}

func add(t *testing.T, root, name, text string) {
	t.Helper()
	full := filepath.Join(root, name)
	check(t, os.MkdirAll(filepath.Dir(full), 0o755))
	if target, ok := strings.CutPrefix(text, "-> "); ok {
		check(t, os.Symlink(target, full))
	} else if strings.HasSuffix(name, "/") {
		check(t, os.MkdirAll(full, 0o755))
	} else {
		check(t, os.WriteFile(full, []byte(text), 0o644))
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clock is a simulated clock that advances only with add.
type clock struct{ time time.Time }

func newClock() *clock               { return &clock{time.Unix(1e9, 0)} }
func (c *clock) now() time.Time      { return c.time }
func (c *clock) add(d time.Duration) { c.time = c.time.Add(d) }

func TestReadFileRefuses(t *testing.T) {
	root := tree(t, map[string]string{"long": strings.Repeat("x", 101), "fits": strings.Repeat("x", 100)})
	check(t, unix.Mkfifo(filepath.Join(root, "fifo"), 0o600))
	for name, refused := range map[string]bool{"long": true, "fits": false, "fifo": true, "none": true, ".": true} {
		data, err := readFile(filepath.Join(root, name), 100)
		if (err != nil) != refused {
			t.Errorf("%s: %d bytes, error %v; want an error: %v", name, len(data), err, refused)
		}
	}
}
