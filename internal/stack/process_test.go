package stack

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProcess(t *testing.T) {
	for _, flags := range [][]string{{"-pie", "-fPIE"}, {"-no-pie", "-fno-pie"}, {"-static"}, {"-Wl,-z,noseparate-code"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			file := compile(t, program, flags...)
			c, ps := start(t, file), newProcesses(t)
			f := ps.name(c.pid(), c.addrs[0]+4)
			expect(t, f, "static_one", 4)
			if f.Module != file || len(f.BuildID) != 40 || f.Kernel {
				t.Errorf("%#v", f)
			}
			expect(t, ps.name(c.pid(), c.addrs[1]), "global_two", 0)
		})
	}
}

// TestProcessStripped checks that an address without a symbol does not get the name of a neighbour,
// and that its offset is the ELF virtual address.
func TestProcessStripped(t *testing.T) {
	file := compile(t, program, "-pie", "-fPIE", "-rdynamic")
	bare := stripped(t, file)
	c, ps := start(t, bare), newProcesses(t)
	expect(t, ps.name(c.pid(), c.addrs[1]+2), "global_two", 2)

	f := ps.name(c.pid(), c.addrs[0]+3)
	if f.Name != "" || f.Reason != NoSymbols || f.Module != bare || len(f.BuildID) != 40 {
		t.Errorf("%#v", f)
	}
	need(t, "nm")
	if want := symbolAddress(t, file, "static_one"); f.Offset != want+3 {
		t.Errorf("offset %#x, want %#x", f.Offset, want+3)
	}
}

func symbolAddress(t *testing.T, file, symbol string) uint64 {
	for line := range strings.Lines(run(t, "nm", file)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[2] == symbol {
			addr, _ := parseHex([]byte(fields[0]))
			return addr
		}
	}
	t.Fatalf("no symbol %s in %s", symbol, file)
	return 0
}

func TestProcessDeleted(t *testing.T) {
	file := compile(t, program)
	c, ps := start(t, file), newProcesses(t)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	f := ps.name(c.pid(), c.addrs[0]+4)
	expect(t, f, "static_one", 4)
	if f.Module != file+" (deleted)" {
		t.Errorf("module %q", f.Module)
	}
}

// TestProcessReplaced checks that the mapped file is read after its path was given to another file.
func TestProcessReplaced(t *testing.T) {
	file := compile(t, program)
	other := compile(t, strings.ReplaceAll(program, "static_one", "another_one"))
	c, ps := start(t, file), newProcesses(t)
	if err := os.Rename(other, file); err != nil {
		t.Fatal(err)
	}
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
}

func TestProcessExited(t *testing.T) {
	deleted := compile(t, program)
	for _, test := range []struct {
		name   string
		file   string
		delete bool
	}{{"file", compile(t, program), false}, {"deleted", deleted, true}} {
		t.Run(test.name, func(t *testing.T) {
			c, ps := start(t, test.file), newProcesses(t)
			if test.delete {
				if err := os.Remove(test.file); err != nil {
					t.Fatal(err)
				}
			}
			if err := ps.Remember(c.pid()); err != nil {
				t.Fatal(err)
			}
			c.stop()
			expect(t, ps.name(c.pid(), c.addrs[0]+4), "static_one", 4)
			dropSymbols(ps)
			expect(t, ps.name(c.pid(), c.addrs[0]+4), "static_one", 4)
			if vdso := c.addrs[2]; vdso != 0 && ps.name(c.pid(), vdso).Module != "[vdso]" {
				t.Errorf("vDSO: %#v", ps.name(c.pid(), vdso))
			}
			ps.now = func() time.Time { return time.Now().Add(time.Hour) }
			if f := ps.name(c.pid(), 0x10); f.Reason != Exited || f.Module != "" {
				t.Errorf("%#v", f)
			}
		})
	}
}

// TestProcessZombie symbolizes addresses of a zombie process.
func TestProcessZombie(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	c.stdin.Close()
	if err := unix.Waitid(unix.P_PID, c.pid(), nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if err := ps.Remember(c.pid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Remember of a zombie: got error %v, want %v", err, fs.ErrNotExist)
	}
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	if f := ps.name(c.pid(), 1); f.Reason != Exited {
		t.Errorf("got %#v", f)
	}
}

// TestProcessKernelThread checks that a kernel thread, which has no mappings, is not reported as
// exited.
func TestProcessKernelThread(t *testing.T) {
	const kthreadd = 2
	if comm, _ := os.ReadFile("/proc/2/comm"); string(comm) != "kthreadd\n" {
		t.Skipf("process 2 is %q, not kthreadd", comm)
	}
	if err := newProcesses(t).Remember(kthreadd); err != nil {
		t.Error(err)
	}
}

// TestProcessLeaderExited symbolizes an address of a process whose thread-group leader has exited.
func TestProcessLeaderExited(t *testing.T) {
	source := `
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_t first;
static void *second(void *arg)
{
	pthread_join(first, 0);
	printf("%p\n", (void *)second), fflush(stdout);
	while (getchar() != EOF)
		;
	_exit(0);
}
int main(void)
{
	pthread_t t;
	first = pthread_self();
	pthread_create(&t, 0, second, 0);
	pthread_exit(0);
}
`
	file := compile(t, source, "-pthread")
	c, ps := start(t, file), newProcesses(t)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect(t, ps.name(c.pid(), c.addrs[0]), "second", 0)
}

// dropSymbols drops all symbols from the cache.
func dropSymbols(ps *Processes) {
	budget := ps.cache.budget
	ps.cache.budget = 0
	ps.cache.evict(nil)
	ps.cache.budget = budget
}

func TestProcessNeverSeen(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	c.stop()
	if err := ps.Remember(c.pid()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Remember after exit: got error %v, want %v", err, fs.ErrNotExist)
	}
	f := ps.name(c.pid(), c.addrs[0])
	if f.Reason != Exited || f.Name != "" || f.String() == "" {
		t.Errorf("%#v", f)
	}
}

func TestProcessUnmapped(t *testing.T) {
	ps := newProcesses(t)
	for _, addr := range []uint64{1, ^uint64(0) >> 1, ^uint64(0)} {
		f := ps.name(os.Getpid(), addr)
		if f.Reason != Unmapped || f.Module != "" || f.Addr != addr {
			t.Errorf("%#x: %#v", addr, f)
		}
	}
	if got := ps.Append(nil, os.Getpid(), []uint64{1, 0, 1}); len(got) != 1 {
		t.Errorf("%d frames, want 1", len(got))
	}
}

// TestProcessMountNamespace runs a program on a file system that is mounted only in its mount
// namespace. Outside, its path is another program.
func TestProcessMountNamespace(t *testing.T) {
	file := compile(t, program)
	need(t, "unshare", "mount")
	if out, err := exec.Command("unshare", "-m", "true").CombinedOutput(); err != nil {
		t.Skipf("create a mount namespace: %v: %s", err, out)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "prog")
	outside := compile(t, strings.ReplaceAll(program, "static_one", "outside_one"))
	if err := os.Rename(outside, path); err != nil {
		t.Fatal(err)
	}
	script := `mount -t tmpfs none "$2" && cp "$1" "$2/prog" && exec "$2/prog"`
	c := start(t, "unshare", "-m", "sh", "-c", script, "sh", file, dir)

	ps := newProcesses(t)
	expect(t, ps.name(c.pid(), c.addrs[0]+4), "static_one", 4)

	// Without access to map_files the file is found by path, below the root of the process.
	s := *ps.pids[c.pid()].snapshot
	m := s.mapping(c.addrs[0])
	h, err := ps.openMapped(m, &s, procDir{path: "/nonexistent"})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.id != m.module.key.file {
		t.Errorf("path refers to %+v, mapped is %+v", h.id, m.module.key.file)
	}
	s.root, s.roots = nil, ps.searchRoots(nil)
	if h, err := ps.openMapped(m, &s, procDir{path: "/nonexistent"}); err == nil {
		t.Errorf("below corescope's root, path refers to %+v, mapped is %+v", h.id, m.module.key.file)
	}
}

func TestProcessVDSO(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	base := c.addrs[2]
	if base == 0 {
		t.Skip("the kernel has no vDSO")
	}
	ps.name(c.pid(), base)
	var names []string
	for addr := base; addr < base+0x2000; addr += 16 {
		f := ps.name(c.pid(), addr)
		if f.Name != "" && f.Module == "[vdso]" && !contains(names, f.Name) {
			names = append(names, f.Name)
		}
	}
	if all := strings.Join(names, " "); !strings.Contains(all, "clock_gettime") {
		t.Errorf("functions of the vDSO are %q, want clock_gettime among them", names)
	}
}

// TestProcessLater loads a library after Remember, and unloads it again.
func TestProcessLater(t *testing.T) {
	source := `
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	void *lib;
	puts("1"), fflush(stdout), getchar();
	lib = dlopen(argv[1], RTLD_NOW);
	printf("%p\n", dlsym(lib, "loaded_late")), fflush(stdout), getchar();
	dlclose(lib);
	puts("3"), fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
`
	file := compile(t, source, "-ldl")
	lib := compile(t, "int loaded_late(int x) { return x * 7; }", "-shared", "-fPIC")
	c, ps := start(t, file, lib), newProcesses(t)
	clock := time.Now()
	ps.now = func() time.Time { return clock }
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	w := c.stdin.(io.Writer)
	w.Write([]byte("\n"))
	late := c.line()[0]
	if f := ps.name(c.pid(), late); f.Reason != Unmapped {
		t.Errorf("mappings were read again too soon: %#v", f)
	}
	clock = clock.Add(time.Second)
	expect(t, ps.name(c.pid(), late), "loaded_late", 0)

	w.Write([]byte("\n"))
	c.line()
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	expect(t, ps.name(c.pid(), late), "loaded_late", 0)
}

// TestProcessReturnAddress looks up return addresses after a call at the end of a function, which
// are the start of the next function; in a gap without symbols; and in the code that signal
// handlers return to.
func TestProcessReturnAddress(t *testing.T) {
	source := `
#include <stdio.h>
#define FUNCTION(name, code) ".globl " #name "\\n.type " #name ",@function\\n" \
	#name ": " code "\\n.size " #name ",.-" #name "\\n"
__asm__(".text\\n" FUNCTION(f_last, "nop\\n nop") FUNCTION(f_next, "nop")
	"nop\\n" FUNCTION(f_gap, "nop") "nop\\n" FUNCTION(__restore_rt, "nop"));
extern char f_next[], f_gap[], __restore_rt[];
int main(void) { printf("%p %p %p\\n", f_next, f_gap, __restore_rt); fflush(stdout); while (getchar() != EOF); return 0; }
`
	c, ps := start(t, compile(t, strings.ReplaceAll(source, `\\n`, `\n`))), newProcesses(t)
	next, gap, trampoline := c.addrs[0], c.addrs[1], c.addrs[2]
	frames := ps.Append(nil, c.pid(), []uint64{next, next, gap, trampoline, next})
	want := []struct {
		name   string
		offset uint64
	}{{"f_next", 0}, {"f_last", 2}, {}, {"__restore_rt", 0}, {"f_next", 0}}
	for i, w := range want {
		if w.name != "" {
			expect(t, frames[i], w.name, w.offset)
		} else if frames[i].Name != "" {
			t.Errorf("return address in code without a symbol: %#v", frames[i])
		}
	}
}

// TestProcessExec replaces the program by another one with the same addresses.
func TestProcessExec(t *testing.T) {
	first := `
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) static int static_one(int x) { return x * 3 + 1; }
int main(int argc, char **argv)
{
	printf("%p\n", (void *)static_one), fflush(stdout);
	if (argc > 1 && getchar() == '\n')
		execv(argv[1], argv + 1);
	while (getchar() != EOF)
		;
	return static_one(1) & 1;
}
`
	second := strings.ReplaceAll(first, "static_one", "static_two")
	flags := []string{"-no-pie", "-fno-pie"}
	c := start(t, compile(t, first, flags...), compile(t, second, flags...))
	ps := newProcesses(t)
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	c.stdin.(io.Writer).Write([]byte("\n"))
	if addrs := c.line(); len(addrs) != 1 || addrs[0] != c.addrs[0] {
		t.Fatalf("addresses of the second program are %#x, want those of the first: %#x", addrs, c.addrs)
	}
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_two", 0)
}

// TestProcessPIDReuse changes the start time of the snapshot, as if the PID had been reused since.
func TestProcessPIDReuse(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	const oldAddr = 0x1000
	s := ps.pids[c.pid()].snapshot
	s.start--
	old := mapping{start: oldAddr, end: oldAddr + 1, path: "/old", module: s.mapping(c.addrs[0]).module}
	ps.cache.retain(old.module)
	s.maps = slices.Insert(s.maps, 0, old)

	ps.now = func() time.Time { return time.Now().Add(time.Hour) }
	if f := ps.name(c.pid(), 1); f.Reason != Exited {
		t.Errorf("got %#v, want reason exited", f)
	}
	if f := ps.name(c.pid(), oldAddr); f.Module != "/old" {
		t.Errorf("the new process has replaced the snapshot: %#v", f)
	}
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
	if f := ps.name(c.pid(), oldAddr); f.Module != "" {
		t.Errorf("the snapshot of the new process has a mapping of the old one: %#v", f)
	}
}

func TestProcessForget(t *testing.T) {
	c, ps := start(t, compile(t, program)), newProcesses(t)
	if err := ps.Remember(c.pid()); err != nil {
		t.Fatal(err)
	}
	if ps.cache.held == 0 {
		t.Error("Remember keeps no files open")
	}
	ps.Forget(c.pid())
	if ps.cache.held != 0 || len(ps.cache.modules) != 0 || len(ps.roots) != 0 {
		t.Errorf("%d files, %d modules, %d roots after Forget, want none", ps.cache.held, len(ps.cache.modules), len(ps.roots))
	}
	expect(t, ps.name(c.pid(), c.addrs[0]), "static_one", 0)
}
