package tools_test

import (
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// The verifier must accept each program of each attach type, not only those that are selected on
// this machine: users force others with --hook, and another kernel selects them. A program is loaded
// without being attached, so that those for kprobes are verified even where kprobes do not exist.
func TestVerifierAcceptsPrograms(t *testing.T) {
	tooltest.Root(t)
	accepted := 0
	for _, tl := range tools.All() {
		spec, err := loadObject(tl.Name + "/bpf_" + objectArch() + "_bpfel.o.gz")
		if errors.Is(err, fs.ErrNotExist) {
			continue // the tool has no programs
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range spec.Maps {
			m.MaxEntries = max(m.MaxEntries, 1)
			if m.Type == ebpf.RingBuf {
				m.MaxEntries = 1 << 16
			}
		}
		for name := range spec.Programs {
			switch err := loadProgram(spec, name); {
			case err == nil:
				accepted++
			case isRefused(err):
				t.Errorf("%s, program %s: %v", tl.Name, name, err)
			}
		}
	}
	if accepted == 0 {
		t.Error("no program was accepted")
	}
}

func objectArch() string {
	if runtime.GOARCH == "arm64" {
		return "arm64"
	}
	return "x86"
}

func loadProgram(spec *ebpf.CollectionSpec, name string) error {
	spec = spec.Copy()
	spec.Programs = map[string]*ebpf.ProgramSpec{name: spec.Programs[name]}
	c, err := ebpf.NewCollection(spec)
	if err == nil {
		c.Close()
	}
	return err
}

// isRefused reports whether the verifier refused a program that this kernel supports. A program for
// other kernels refers to types or fields that do not exist (a bad CO-RE relocation).
func isRefused(err error) bool {
	var refused *ebpf.VerifierError
	return errors.As(err, &refused) && !errors.Is(err, ebpf.ErrNotSupported) && !strings.Contains(err.Error(), "bad CO-RE relocation") && len(refused.Log) > 0
}
