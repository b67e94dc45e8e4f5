package system

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kallsyms writes /proc/kallsyms below a new root directory.
func kallsyms(t *testing.T, table string) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/kallsyms"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestKernelSymbol(t *testing.T) {
	root := kallsyms(t, "ffffffff81000000 T _text\nffffffff82000010 D __per_cpu_offset\n0000000000000000 D hidden\nffffffffc0000000 t in_module\t[m]\n")
	if got, err := KernelSymbol(root, "__per_cpu_offset"); err != nil || got != 0xffffffff82000010 {
		t.Errorf("__per_cpu_offset = %x, %v, want ffffffff82000010", got, err)
	}
	for _, name := range []string{"hidden", "in_module", "per_cpu_offset", ""} {
		if got, err := KernelSymbol(root, name); !errors.Is(err, ErrNoSymbol) {
			t.Errorf("KernelSymbol(%q) = %x, %v, want %v", name, got, err, ErrNoSymbol)
		}
	}
}

func TestKernelCode(t *testing.T) {
	isLock := func(name string) bool { return strings.HasPrefix(name, "lock_") }
	root := kallsyms(t, `0000000000000000 t lock_hidden
ffffffff81000000 T open
ffffffff81000100 T read
ffffffff81000100 T lock_same
ffffffff81000200 t __pfx_lock_a.isra.0
ffffffff81000210 t lock_a.isra.0
ffffffff81000210 T alias
ffffffff81000300 T write
ffffffff81000400 t lock_b.cold
ffffffff81000500 T last
ffffffffc0000000 t lock_module	[m]
ffffffffc0000100 t module	[m]
`)
	want := []Range{{0xffffffff81000100, 0xffffffff81000300}, {0xffffffff81000400, 0xffffffff81000500}}
	if got, err := KernelCode(root, isLock); err != nil || !slices.Equal(got, want) {
		t.Errorf("code %x, %v, want %x", got, err, want)
	}
	if HasKernelData(root) || !HasKernelData(kallsyms(t, "ffffffff82000000 D init_task\n")) {
		t.Error("HasKernelData is wrong")
	}
}
