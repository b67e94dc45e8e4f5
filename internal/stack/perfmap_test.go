package stack

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParsePerfMap(t *testing.T) {
	type want map[uint64]string
	tests := []struct {
		name, text string
		want       want
	}{
		{"empty", "", want{0: ""}},
		{"plain", "10 8 a\n20 10 b c;d @x\n", want{0xf: "", 0x10: "a", 0x17: "a", 0x18: "", 0x2f: "b c;d @x"}},
		{"0x", "0x10 0x8 a\n", want{0x10: "a"}},
		{"unordered", "20 8 b\n10 8 a\n", want{0x10: "a", 0x20: "b"}},
		{"replaced", "10 8 old\n10 8 new\n", want{0x10: "new"}},
		{"overlapped by a later line", "10 20 old\n20 4 new\n", want{0x10: "", 0x1f: "", 0x20: "new", 0x24: ""}},
		{"overlapped at the end", "20 8 old\n10 20 new\n", want{0x10: "new", 0x21: "new"}},
		{"neighbours", "10 8 a\n18 8 b\n8 8 c\n", want{0xf: "c", 0x10: "a", 0x17: "a", 0x18: "b"}},
		{"incomplete line", "10 8 a\n20 8 b", want{0x10: "a", 0x20: ""}},
		{"malformed", "x 8 a\n10\n10 8\n10 8 \n10 x a\n-10 8 a\n20 8 b\n", want{0x10: "", 0x20: "b"}},
		{"size 0 replaces nothing", "10 8 a\n10 0 b\n", want{0x10: "a"}},
		{"end overflows", "fffffffffffffff0 20 a\n10 0 b\n", want{^uint64(0): "", 0x10: ""}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table, err := parsePerfMap(strings.NewReader(test.text), int64(len(test.text)), "a")
			if err != nil {
				t.Fatal(err)
			}
			for addr, want := range test.want {
				if got := table.at(addr); got != want {
					t.Errorf("%#x: got %q, want %q", addr, got, want)
				}
			}
		})
	}
}

// jit maps executable anonymous memory and a memfd, and prints their addresses and its PID in its
// own PID namespace.
const jit = `
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void)
{
	void *page = mmap(0, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = memfd_create("jit", 0);
	void *file;
	ftruncate(fd, 4096);
	file = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	printf("%p %d %p\n", page, getpid(), file);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
`

// writePerfMap writes the perf map of a PID and removes it at the end of the test.
func writePerfMap(t *testing.T, dir string, pid uint64, text string) string {
	t.Helper()
	file := filepath.Join(dir, fmt.Sprintf("perf-%d.map", pid))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(file) })
	return file
}

func TestPerfMap(t *testing.T) {
	c, ps := start(t, compile(t, jit)), newProcesses(t)
	clock := time.Now()
	ps.now = func() time.Time { return clock }
	page, memfd := c.addrs[0], c.addrs[2]
	f := ps.name(c.pid(), page+0x10)
	if f.Name != "" || f.Module != "[anon]" || f.Offset != 0x10 || f.Reason != NoSymbols {
		t.Errorf("without a perf map: %#v", f)
	}

	file := writePerfMap(t, "/tmp", c.addrs[1], fmt.Sprintf("%x 20 LazyCompile:~f /@x.js:1\n%x 10 in_memfd\n", page, memfd))
	clock = clock.Add(time.Second)
	expect(t, ps.name(c.pid(), page+0x10), "LazyCompile:~f /@x.js:1", 0x10)
	expect(t, ps.name(c.pid(), memfd+4), "in_memfd", 4)
	if f := ps.name(c.pid(), page+0x10); f.Module != file {
		t.Errorf("module %q", f.Module)
	}
	if f := ps.name(c.pid(), page+0x20); f.Name != "" || f.Module != "[anon]" {
		t.Errorf("after the function: %#v", f)
	}

	writePerfMap(t, "/tmp", c.addrs[1], fmt.Sprintf("%x 20 LazyCompile:~f /@x.js:1\n%x 20 more\n", page, page+0x20))
	clock = clock.Add(time.Second)
	expect(t, ps.name(c.pid(), page+0x21), "more", 1)

	c.stop()
	expect(t, ps.name(c.pid(), page+0x21), "more", 1)
	ps.Forget(c.pid())
	for _, m := range ps.cache.modules {
		if m.key.kind == kindPerfMap {
			t.Error("the perf map is still cached after Forget")
		}
	}
}

// TestPerfMapStale checks that the perf map of an earlier process with the same PID is not used.
func TestPerfMapStale(t *testing.T) {
	c, ps := start(t, compile(t, jit)), newProcesses(t)
	file := writePerfMap(t, "/tmp", c.addrs[1], fmt.Sprintf("%x 20 stale\n", c.addrs[0]))
	before := time.Now().Add(-time.Minute)
	if err := os.Chtimes(file, before, before); err != nil {
		t.Fatal(err)
	}
	if f := ps.name(c.pid(), c.addrs[0]); f.Name != "" {
		t.Errorf("used the perf map of an earlier process: %#v", f)
	}
}

// TestPerfMapNamespace runs the process in its own PID and mount namespaces, where its PID is 1 and
// /tmp is another directory.
func TestPerfMapNamespace(t *testing.T) {
	file := compile(t, jit)
	need(t, "unshare", "mount")
	if out, err := exec.Command("unshare", "-mpf", "true").CombinedOutput(); err != nil {
		t.Skipf("create namespaces: %v: %s", err, out)
	}
	dir := t.TempDir()
	script := `cp "$1" "$2/prog" && mount --bind "$2" /tmp && exec /tmp/prog`
	c := start(t, "unshare", "-mpf", "sh", "-c", script, "sh", file, dir)
	if c.addrs[1] != 1 {
		t.Fatalf("the program has PID %d, want 1", c.addrs[1])
	}
	writePerfMap(t, dir, 1, fmt.Sprintf("%x 20 jitted\n", c.addrs[0]))
	pid := onlyChild(t, c.pid())
	ps := newProcesses(t)
	f := ps.name(pid, c.addrs[0]+1)
	expect(t, f, "jitted", 1)
	if f.Module != "/tmp/perf-1.map" {
		t.Errorf("module %q", f.Module)
	}
}

// onlyChild returns the PID of the only child of a process.
func onlyChild(t *testing.T, pid int) (child int) {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Skip(err)
	}
	if _, err := fmt.Sscan(string(data), &child); err != nil {
		t.Fatalf("children %q: %v", data, err)
	}
	return child
}

// TestPerfMapIsPipe checks that a pipe in place of the perf map is not opened, which would block.
func TestPerfMapIsPipe(t *testing.T) {
	need(t, "mkfifo")
	c, ps := start(t, compile(t, jit)), newProcesses(t)
	file := fmt.Sprintf("/tmp/perf-%d.map", c.addrs[1])
	t.Cleanup(func() { os.Remove(file) })
	run(t, "mkfifo", file)
	if f := ps.name(c.pid(), c.addrs[0]); f.Name != "" {
		t.Errorf("got %#v, want no name", f)
	}
}
