package code

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

const source = `
#define KEEP __attribute__((noinline, noclone, visibility("hidden")))
int other(int);
__attribute__((noinline, noclone)) int exported(int n) { asm volatile(""); return n + 3; }
KEEP int leaf(int n) { asm volatile(""); return n + 1; }
KEEP int calls(int n) { return leaf(n) + leaf(n + 1); }
KEEP int several(int n) { asm volatile(""); if (n > 3) { asm volatile(""); return n * 7; } return calls(n) + 1; }
KEEP int tail(int n) { asm volatile(""); if (n & 1) return calls(n); return n; }
KEEP int linked(int n) { asm volatile(""); return exported(n); }
KEEP int foreign(int n) { asm volatile(""); return other(n); }
KEEP int pointer(int (*f)(int), int n) { asm volatile(""); return f(n); }
KEEP int syscalls(long n)
{
	long ret;
#ifdef __x86_64__
	asm volatile("syscall" : "=a"(ret) : "a"(n) : "rcx", "r11", "memory");
#else
	register long x8 asm("x8") = n, x0 asm("x0");
	asm volatile("svc 0" : "=r"(x0) : "r"(x8) : "memory");
	ret = x0;
#endif
	return ret;
}
int use(int n)
{
	return leaf(n) + calls(n) + several(n) + tail(n) + linked(n) + foreign(n) + pointer(exported, n) + syscalls(n);
}
`

// library compiles a shared library.
func library(t *testing.T) *elf.File {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skipf("no C compiler installed: %v", err)
	}
	dir := t.TempDir()
	file, out := filepath.Join(dir, "source.c"), filepath.Join(dir, "library.so")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-O2", "-fPIC", "-shared", "-fasynchronous-unwind-tables", "-fsemantic-interposition", "-o", out, file}
	if text, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v: %s", err, text)
	}
	f, err := elf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestReturns checks return instructions of functions that call others or jump to them, and whether
// an exception can leave them.
func TestReturns(t *testing.T) {
	f := library(t)
	text, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	type facts struct{ own, shared, hidden, unwinds bool }
	for name, want := range map[string]facts{
		"leaf":     {own: true},
		"calls":    {own: true, unwinds: true},
		"several":  {own: true, unwinds: true},
		"tail":     {own: true, shared: true, unwinds: true},
		"linked":   {shared: true},
		"foreign":  {hidden: true, unwinds: true},
		"pointer":  {hidden: true, unwinds: true},
		"syscalls": {own: true, unwinds: true},
	} {
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
		if i < 0 {
			t.Fatalf("the library has no function %s", name)
		}
		exits, err := text.Returns(symbols[i].Value)
		got := facts{hidden: errors.Is(err, ErrHidden), unwinds: text.Unwinds(symbols[i].Value)}
		for _, e := range exits {
			got.own, got.shared = got.own || !e.Shared, got.shared || e.Shared
		}
		if got != want {
			t.Errorf("%s: %+v (%v, %v), want %+v", name, got, fmt.Sprint(exits), err, want)
		}
	}
}
