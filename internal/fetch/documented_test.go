package fetch

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/usdt"
)

// documentedProbes returns the probes in the command lines of a tool in BCC's documentation.
func documentedProbes(t *testing.T, tool string) (all []string) {
	t.Helper()
	data, err := os.ReadFile("../../tools/testdata/commands.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "\t")
		if cells[0] != tool {
			continue
		}
		for _, m := range regexp.MustCompile(`'([^']*)'`).FindAllStringSubmatch(cells[1], -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// placeOf returns an attach point as the finder would, without searching for it.
func placeOf(s *target.Spec) *target.Place {
	p := &target.Place{Target: probe.Target{Name: s.Name}, Kind: s.Kind, Return: s.Return}
	switch {
	case s.Kind == target.Tracepoint:
		p.Name = strings.Replace(s.Name, ":", "/", 1)
	case s.Kind == target.USDT:
		for range 4 {
			p.Args = append(p.Args, usdt.Arg{Kind: usdt.Register, Size: 8, Base: &usdt.Reg{Size: 8}})
		}
	case s.Kind == target.Kernel:
		p.IsSyscall = strings.HasPrefix(s.Name, "sys_")
	}
	return p
}

// TestDocumented compiles the probes of BCC's documentation, except those that need a compiler.
func TestDocumented(t *testing.T) {
	tooltest.Tracefs(t) // formats of tracepoints, and constants in them
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Skipf("the kernel provides no BTF: %v", err)
	}
	f := &Finder{Types: types, TextSize: 120, DataMax: 512, Binary: true, Calls: true}
	total := 0
	for tool, parse := range map[string]func(string) (*Probe, error){"trace": Parse, "argdist": ParseDist} {
		for _, text := range documentedProbes(t, tool) {
			total++
			p, err := parse(text)
			if err == nil {
				_, _, _, err = f.compile(p, placeOf(&p.Spec))
			}
			if err != nil {
				t.Errorf("%s %q: %v", tool, text, err)
			}
		}
	}
	if total < 40 {
		t.Errorf("only %d probes are documented", total)
	}
}
