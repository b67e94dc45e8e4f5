package tooltest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// ColdTexts are copies of a text in mapped pages that are not resident, because nothing has
// accessed them. Every second copy crosses a page boundary.
type ColdTexts struct {
	memory  []byte
	offsets []int
}

// NewColdTexts maps a file with n copies of the text until the test ends.
func NewColdTexts(t testing.TB, text string, n int) *ColdTexts {
	t.Helper()
	page := os.Getpagesize()
	content := make([]byte, 2*page*n)
	c := &ColdTexts{}
	for i := range n {
		offset := 2 * page * i
		if i%2 == 1 {
			offset += page - len(text)/2
		}
		copy(content[offset:], text)
		c.offsets = append(c.offsets, offset)
	}
	path := filepath.Join(t.TempDir(), "cold")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c.memory, err = unix.Mmap(int(f.Fd()), 0, len(content), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("map %s: %v", path, err)
	}
	t.Cleanup(func() { _ = unix.Munmap(c.memory) })
	return c
}

// Each calls f with the address of each copy. Before each call it removes all pages from the page
// tables, because an access also maps the pages around the accessed one (fault-around).
func (c *ColdTexts) Each(f func(text uintptr)) {
	for _, offset := range c.offsets {
		if err := unix.Madvise(c.memory, unix.MADV_DONTNEED); err != nil {
			panic(err) // the arguments are valid
		}
		f(uintptr(unsafe.Pointer(&c.memory[offset])))
	}
}

// HasSleepableUprobes reports whether the kernel loads sleepable programs for uprobes (6.0).
func HasSleepableUprobes(t testing.TB) bool {
	t.Helper()
	Root(t)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, Flags: unix.BPF_F_SLEEPABLE, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	switch {
	case err == nil:
		_ = prog.Close()
	case !errors.Is(err, unix.EINVAL):
		t.Fatalf("load sleepable program: %v", err)
	}
	return err == nil
}
