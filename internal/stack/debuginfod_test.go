package stack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// fakeDebuginfod replaces debuginfod-find with a program that returns file, if that exists, and
// writes each request to the file requests.
func fakeDebuginfod(t *testing.T, file string) (d *Debuginfod, requests string) {
	t.Helper()
	dir := t.TempDir()
	requests = filepath.Join(dir, "requests")
	script := fmt.Sprintf("#!/bin/sh\necho \"$DEBUGINFOD_URLS $1 $2\" >> %s\n[ -e %s ] && echo %[2]s\n", requests, file)
	if err := os.WriteFile(filepath.Join(dir, "debuginfod-find"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	d, err := NewDebuginfod("http://one http://two")
	if err != nil {
		t.Fatal(err)
	}
	return d, requests
}

func TestDebuginfod(t *testing.T) {
	tests := []struct {
		name string
		file func(d debugTree) string // the file that the servers have
		want string
	}{
		{"found", func(d debugTree) string { return filepath.Join(d.root.dir.Name(), "elsewhere") }, "static_one"},
		{"not found", func(debugTree) string { return "/nonexistent" }, ""},
		{"other build-id", func(debugTree) string {
			other := filepath.Join(t.TempDir(), "other")
			run(t, "objcopy", "--only-keep-debug", compile(t, program+"int one_more;"), other)
			return other
		}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := makeDebugTree(t, func(debugTree, string, string) string { return "/elsewhere" })
			servers, requests := fakeDebuginfod(t, test.file(d))
			d.symbols.servers = servers
			for range 2 {
				if got := d.symbols.at(d.function+1, place{path: d.path, roots: []*root{d.root}}); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			}
			got, err := os.ReadFile(requests)
			if want := "http://one http://two debuginfo " + d.symbols.buildID + "\n"; err != nil || string(got) != want {
				t.Errorf("requests are %q, %v; want one: %q", got, err, want)
			}
		})
	}
}

// TestDebuginfodNotNeeded looks up an address for which the file has a symbol.
func TestDebuginfodNotNeeded(t *testing.T) {
	full := compile(t, program)
	servers, requests := fakeDebuginfod(t, full)
	s := loadSymbols(t, full)
	s.servers = servers
	if got := s.at(symbolAddress(t, full, "static_one")+1, place{}); got != "static_one" {
		t.Errorf("got %q", got)
	}
	if got, err := os.ReadFile(requests); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("requests are %q, %v; want none", got, err)
	}
}

func TestNoDebuginfod(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := NewDebuginfod("http://one"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
}
