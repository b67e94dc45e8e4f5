package tooltest

import (
	"debug/elf"
	"os/exec"
	"slices"
	"testing"
)

// IsDynamic reports whether a command is dynamically linked.
func IsDynamic(t testing.TB, command string) bool {
	t.Helper()
	path, err := exec.LookPath(command)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}
