package probe

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/corescope/corescope/internal/system"
)

// TestKernelSymbolsWithoutCapabilities looks up a symbol as tools do, without capabilities, unless the
// kernel then refuses to read maps, too (see confine in internal/tool). It runs in a process of its own,
// in which the library has run no program before.
func TestKernelSymbolsWithoutCapabilities(t *testing.T) {
	const child = "CORESCOPE_TEST_SYMBOLS"
	symbols := loadKernelSymbols(t)
	if os.Getenv(child) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	err := system.Try(0, func() error {
		_, err := symbols.lookUp(0)
		return err
	})
	refused := system.Try(0, func() error { return symbols.symbol.Lookup(uint32(0), make([]byte, symbolBytes)) })
	if err != nil && refused == nil {
		t.Error(err)
	}
}

func loadKernelSymbols(t *testing.T) *kernelSymbols {
	t.Helper()
	needRoot(t)
	symbols, err := newKernelSymbols()
	if err != nil {
		if errors.Is(features.HaveProgramType(ebpf.Syscall), ebpf.ErrNotSupported) {
			t.Skip("no programs of type syscall")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := symbols.Close(); err != nil {
			t.Error(err)
		}
	})
	return symbols
}

// TestKernelSymbols compares the symbols of functions with /proc/kallsyms: with the names of every
// address of the kernel and its modules, and of the byte after it.
func TestKernelSymbols(t *testing.T) {
	symbols := loadKernelSymbols(t)
	names := functionNames(t)
	unknown := 0
	for addr, all := range names {
		for offset := range uint64(2) {
			text, err := symbols.lookUp(addr + offset)
			if err != nil {
				t.Fatal(err)
			}
			if text == fmt.Sprintf("%#x", addr+offset) {
				unknown++
				continue
			}
			name, rest, _ := strings.Cut(text, fmt.Sprintf("+%#x/", offset))
			_, module, _ := strings.Cut(rest, " ")
			if named := strings.TrimSpace(name + "\t" + module); names[addr+offset] == nil && !slices.Contains(all, named) {
				t.Errorf("%x: got %q, want one of %q", addr+offset, text, all)
			}
		}
	}
	// Markers of the linker at the ends of sections are no functions.
	if len(names) < 1000 || unknown > 20 {
		t.Errorf("%d of %d addresses are unknown", unknown, len(names))
	}
}

// functionNames returns the names of the functions in /proc/kallsyms by address, without BPF programs
// and trampolines, which can be unloaded. It skips the test if addresses are hidden.
func functionNames(t *testing.T) map[uint64][]string {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	names := map[uint64][]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var addr uint64
		var kind, name string
		if _, err := fmt.Sscanf(lines.Text(), "%x %s", &addr, &kind); err != nil {
			t.Fatal(err)
		}
		_, name, _ = strings.Cut(lines.Text(), kind+" ")
		if strings.Contains("tTwW", kind) && !strings.Contains(name, "[bpf]") && !strings.Contains(name, "[__builtin_") {
			names[addr] = append(names[addr], name)
		}
	}
	if len(names) == 1 && names[0] != nil {
		t.Skip("the kernel hides its addresses")
	}
	return names
}
