package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/corescope/corescope/"

// rules are the two tables of ARCHITECTURE.md: the packages of this module that each package
// imports, and the packages that import each library.
type rules struct {
	packages, libraries map[string][]string
}

// anyTool stands for all tool packages in the table.
const anyTool = "tools/NAME"

var code = regexp.MustCompile("`([^`]+)`")

func readRules(t *testing.T) rules {
	t.Helper()
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	r := rules{map[string][]string{}, map[string][]string{}}
	var columns int
	var table map[string][]string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		switch {
		case strings.HasPrefix(line, "| package | purpose | imports |"):
			columns, table = 3, r.packages
		case strings.HasPrefix(line, "| library | importers |"):
			columns, table = 2, r.libraries
		case !strings.HasPrefix(line, "|"):
			table = nil
		case table != nil && strings.HasPrefix(line, "| `"):
			if len(cells) < columns {
				cells = append(cells, "") // an empty last cell was trimmed
			}
			table[code.FindStringSubmatch(cells[0])[1]] = names(cells[columns-1])
		}
	}
	if len(r.packages) < 20 || len(r.libraries) < 5 {
		t.Fatalf("ARCHITECTURE.md has %d packages and %d libraries", len(r.packages), len(r.libraries))
	}
	return r
}

// names returns the packages in a cell: `probe` is internal/probe.
func names(cell string) []string {
	var out []string
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		name := m[1]
		if name != "tools" && !strings.Contains(name, "/") {
			name = "internal/" + name
		}
		out = append(out, name)
	}
	return out
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

// row returns the row of a package. All tools share a row, and a package without a row has that of
// the directory above it.
func (r *rules) row(path string) (string, bool) {
	if dir, _, ok := strings.Cut(path, "/"); ok && dir == "tools" {
		return anyTool, true
	}
	for ; path != "."; path = filepath.Dir(path) {
		for _, name := range []string{path, path + "/"} {
			if _, ok := r.packages[name]; ok {
				return name, true
			}
		}
	}
	return "", false
}

// TestLayering checks that packages import exactly what ARCHITECTURE.md lists.
func TestLayering(t *testing.T) {
	r := readRules(t)
	for _, fault := range r.check(packages(t)) {
		t.Error(fault)
	}
}

func (r *rules) check(all []pkg) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	used := map[[2]string]bool{}
	rows := map[string]bool{}
	for _, p := range all {
		row, ok := r.row(p.ImportPath)
		if rows[row] = true; !ok {
			fault("%s is not in the table of ARCHITECTURE.md", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if name, ours := strings.CutPrefix(imp, module); ours && row != "test/" {
				entry := r.imports(row, name)
				used[[2]string{row, entry}] = true
				if entry == "" {
					fault("%s imports %s, which ARCHITECTURE.md does not list", p.ImportPath, name)
				}
			}
			if importers, ok := r.libraries[imp]; ok && row != "test/" {
				used[[2]string{row, imp}] = true
				if !slices.Contains(importers, row) {
					fault("%s imports %s, which only %v may import", p.ImportPath, imp, importers)
				}
			}
		}
	}
	for _, row := range slices.Sorted(maps.Keys(r.packages)) {
		if row != "bpf/" && row != "vmlinux/" && !rows[row] {
			fault("package %s does not exist", row)
		}
		for _, name := range r.packages[row] {
			if name != anyTool && !used[[2]string{row, name}] {
				fault("%s does not import %s, which ARCHITECTURE.md lists", row, name)
			}
		}
	}
	for _, library := range slices.Sorted(maps.Keys(r.libraries)) {
		for _, name := range r.libraries[library] {
			if !used[[2]string{name, library}] {
				fault("%s does not import %s, which ARCHITECTURE.md lists", name, library)
			}
		}
	}
	return faults
}

// imports returns the entry in a row that allows to import a package, or "".
func (r *rules) imports(row, name string) string {
	for _, entry := range r.packages[row] {
		if name == entry || entry == anyTool && strings.HasPrefix(name, "tools/") {
			return entry
		}
	}
	return ""
}

// TestLayeringFindsFaults checks that each kind of fault is found, and none if packages match the
// tables.
func TestLayeringFindsFaults(t *testing.T) {
	r := rules{
		map[string][]string{"cmd/x": {"internal/a", "tools"}, "tools": {anyTool}, anyTool: {"internal/a"}, "internal/a": {"internal/b"}, "internal/b": nil, "test/": nil},
		map[string][]string{"log": {}, "lib": {"internal/b"}},
	}
	good := func() map[string][]string {
		return map[string][]string{
			"cmd/x": {module + "internal/a", module + "tools"}, "tools": {module + "tools/t"}, "tools/t": {module + "internal/a", "fmt"},
			"internal/a": {module + "internal/b"}, "internal/b": {"lib"}, "test/y": {module + "tools/t", "log"},
		}
	}
	for _, tt := range []struct {
		want   string
		change func(map[string][]string)
	}{
		{"", func(map[string][]string) {}},
		{"internal/b imports internal/a, which ARCHITECTURE.md does not list", func(m map[string][]string) { m["internal/b"] = append(m["internal/b"], module+"internal/a") }},
		{"tools/t imports internal/b, which ARCHITECTURE.md does not list", func(m map[string][]string) { m["tools/t"] = append(m["tools/t"], module+"internal/b") }},
		{"internal/a imports lib, which only [internal/b] may import", func(m map[string][]string) { m["internal/a"] = append(m["internal/a"], "lib") }},
		{"internal/b imports log, which only [] may import", func(m map[string][]string) { m["internal/b"] = append(m["internal/b"], "log") }},
		{"internal/new is not in the table of ARCHITECTURE.md", func(m map[string][]string) { m["internal/new"] = nil }},
		{"internal/a does not import internal/b, which ARCHITECTURE.md lists", func(m map[string][]string) { m["internal/a"] = nil }},
		{"internal/b does not import lib, which ARCHITECTURE.md lists", func(m map[string][]string) { m["internal/b"] = nil }},
	} {
		m := good()
		tt.change(m)
		var all []pkg
		for _, path := range slices.Sorted(maps.Keys(m)) {
			all = append(all, pkg{path, m[path]})
		}
		if got := strings.Join(r.check(all), "\n"); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// TestNoExport checks that the binary with the tools has no HTTP server or client, which is a third
// of its size: the exporters are in corescope-agent.
func TestNoExport(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		if name == "net/http" || name == "crypto/tls" || strings.HasPrefix(name, "google.golang.org/protobuf/") || name == module+"internal/metric" {
			t.Errorf("cmd/corescope depends on %s", name)
		}
	}
}

// TestOnlyMainEndsTheProcess checks that packages, except for test helpers, do not end the process,
// have no init functions and do not use cgo.
func TestOnlyMainEndsTheProcess(t *testing.T) {
	for _, dir := range []string{"../../internal", "../../tools"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			isTest := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/tooltest/") || strings.Contains(path, "internal/tcptest/") || strings.Contains(path, "internal/schedtest/")
			if err != nil || entry.IsDir() || isTest || filepath.Ext(path) != ".go" {
				return err
			}
			for _, fault := range forbidden(t, path) {
				t.Errorf("%s: %s", path, fault)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// forbidden returns the constructs in a file that are not allowed.
func forbidden(t *testing.T, path string) (faults []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, imp := range file.Imports {
		if imp.Path.Value == `"C"` {
			faults = append(faults, "imports C (cgo)")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Name.Name == "init" && n.Recv == nil {
				faults = append(faults, "has an init function")
			}
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "os" && n.Sel.Name == "Exit" {
				faults = append(faults, "calls os.Exit")
			}
		}
		return true
	})
	return faults
}
