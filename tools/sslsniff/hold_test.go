package sslsniff

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// hold maps the installed library with this name, so that the tool attaches to it from the start,
// not only when the traced program has mapped it.
func hold(t *testing.T, name string) {
	t.Helper()
	for _, dir := range []string{"/usr/lib/*/", "/usr/lib/", "/usr/lib64/", "/usr/local/lib/"} {
		paths, err := filepath.Glob(dir + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			b, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
			f.Close()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Munmap(b) })
		}
	}
}
