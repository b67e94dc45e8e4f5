package main

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/corescope/corescope/"

// mayImport is ARCHITECTURE.md's table: what of the project a room may know. A room
// that is not here may know nothing of it.
func mayImport() map[string][]string {
	house := []string{"tool", "value", "flags", "histogram", "system", "stack", "column", "flame", "layout", "output", "probe", "ring", "screen", "binary", "unwind"}
	return map[string][]string{
		"cmd/corescope":     {"internal/command", "tools"},
		"tools":             {"internal/tool", "tools/"},
		"tools/":            internal("tool", "value", "flags", "histogram", "system", "stack", "binary", "target", "compile", "fetch", "fsop", "blockio"),
		"internal/command":  internal("tool", "manual", "output", "column", "flags", "doctor"),
		"internal/tool":     internal(append(slices.Clone(house[1:]), "manual", "doctor")...),
		"internal/doctor":   internal("probe", "system"),
		"internal/probe":    internal("binary", "system", "usdt", "vmlinux"),
		"internal/ring":     internal("system"),
		"internal/flame":    internal("value"),
		"internal/unwind":   internal("binary", "stack"),
		"internal/usdt":     internal("binary"),
		"internal/target":   internal("binary", "probe", "usdt"),
		"internal/blockio":  internal("system", "tool"),
		"internal/fsop":     internal("flags", "target", "tool", "value"),
		"internal/fetch":    internal("compile", "probe", "target", "value"),
		"internal/output":   internal("column", "value"),
		"internal/column":   internal("value"),
		"internal/tooltest": internal("tool"),
		"internal/tcptest":  internal("tooltest"),
		"internal/template": internal("tool", "value"),
	}
}

func internal(names ...string) []string {
	for i := range names {
		names[i] = "internal/" + names[i]
	}
	return names
}

// onlyBy lists libraries that one room hides from all others.
func onlyBy() map[string][]string {
	return map[string][]string{
		"github.com/cilium/ebpf/link":          {"internal/probe"},
		"github.com/cilium/ebpf/ringbuf":       {"internal/ring"},
		"github.com/cilium/ebpf/perf":          {"internal/ring"},
		"github.com/spf13/pflag":               {"internal/flags"},
		"github.com/expr-lang/expr":            {"internal/column"},
		"github.com/olekukonko/tablewriter":    {"internal/tool", "internal/command", "internal/output"},
		"github.com/ianlancetaylor/demangle":   {"internal/stack", "test/stacks"},
		"github.com/google/pprof/profile":      {"internal/flame"},
		"github.com/gdamore/tcell/v2":          {"internal/screen"},
		"log":                                  {},
		"github.com/cilium/ebpf/internal/unix": {},
	}
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		all = append(all, p)
	}
	return all
}

func TestArrowsPointDown(t *testing.T) {
	rules := mayImport()
	for _, p := range packages(t) {
		allowed, ok := rules[p.ImportPath]
		if !ok && strings.HasPrefix(p.ImportPath, "tools/") {
			allowed = rules["tools/"]
		}
		for _, imp := range p.Imports {
			if room, ours := strings.CutPrefix(imp, module); ours && !permitted(room, allowed) && !strings.HasPrefix(p.ImportPath, "test/") {
				t.Errorf("%s must not import %s", p.ImportPath, room)
			}
			if rooms, hidden := onlyBy()[imp]; hidden && !slices.Contains(rooms, p.ImportPath) {
				t.Errorf("%s must not import %s: only %v may", p.ImportPath, imp, rooms)
			}
		}
	}
}

func permitted(room string, allowed []string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return room == a || strings.HasSuffix(a, "/") && strings.HasPrefix(room, a)
	})
}
