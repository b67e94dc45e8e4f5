package system

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestKernelSymbol(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o700); err != nil {
		t.Fatal(err)
	}
	table := "ffffffff81000000 T _text\nffffffff82000010 D __per_cpu_offset\n0000000000000000 D hidden\nffffffffc0000000 t in_module\t[m]\n"
	if err := os.WriteFile(filepath.Join(root, "proc/kallsyms"), []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := KernelSymbol(root, "__per_cpu_offset"); err != nil || got != 0xffffffff82000010 {
		t.Errorf("__per_cpu_offset = %x, %v, want ffffffff82000010", got, err)
	}
	for _, name := range []string{"hidden", "in_module", "per_cpu_offset", ""} {
		if got, err := KernelSymbol(root, name); !errors.Is(err, ErrNoSymbol) {
			t.Errorf("KernelSymbol(%q) = %x, %v, want %v", name, got, err, ErrNoSymbol)
		}
	}
}
