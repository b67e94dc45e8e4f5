package stack

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const goProgram = `package main

import "fmt"

//go:noinline
func callee(x int) int { fmt.Println(x); return x + 1 }

type worker struct{}

//go:noinline
func (*worker) work(x int) int { return callee(x) }

func main() { new(worker).work(1) }
`

// cgoProgram is linked by the C linker, which puts C start code into .text before the Go code.
const cgoProgram = `package main

// static int one(void) { return 1; }
import "C"

import "fmt"

//go:noinline
func callee(x int) int { fmt.Println(x); return x + 1 }

func main() { callee(int(C.one())) }
`

func buildGo(t *testing.T, source string, env []string, flags ...string) string {
	t.Helper()
	need(t, "go")
	dir := t.TempDir()
	file, out := filepath.Join(dir, "main.go"), filepath.Join(dir, "prog")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", append(append([]string{"build", "-o", out}, flags...), file)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...) // not in the module of this test
	if message, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, message)
	}
	return out
}

// TestGoFunctions compares the function table of a stripped program with the symbols it had before
// stripping: the first and the last byte of each Go function must have its name.
func TestGoFunctions(t *testing.T) {
	tests := []struct {
		name, source string
		flags        []string
	}{
		{"exe", goProgram, nil},
		{"pie", goProgram, []string{"-buildmode=pie"}},
		{"cgo exe", cgoProgram, nil},
		{"cgo pie", cgoProgram, []string{"-buildmode=pie"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			env := []string{"CGO_ENABLED=0"}
			if test.source == cgoProgram {
				need(t, "gcc")
				env[0] = "CGO_ENABLED=1"
			}
			full := buildGo(t, test.source, env, test.flags...)
			checkGoTable(t, full, stripped(t, full))
		})
	}
}

func checkGoTable(t *testing.T, full, bare string) {
	t.Helper()
	table, _ := openTestImage(t, bare).goFunctions()
	if table == nil {
		t.Fatal("no table")
	}
	functions := 0
	for _, fn := range elfFunctions(t, full) {
		if !isGoName(fn) {
			continue
		}
		functions++
		// In the table, functions and their ABI wrappers have the same name.
		want := strings.TrimSuffix(fn.Name, ".abi0")
		for _, addr := range []uint64{fn.Value, fn.Value + fn.Size - 1} {
			if got := table.at(addr); got != want {
				t.Errorf("%s at %#x is %q", fn.Name, addr, got)
			}
		}
	}
	if functions < 1000 {
		t.Errorf("%d functions, want at least 1000", functions)
	}
}

// isGoName reports whether a function is in the table, which lacks C functions.
func isGoName(fn elf.Symbol) bool {
	return strings.HasPrefix(fn.Name, "runtime.") || strings.HasPrefix(fn.Name, "main.") || strings.HasPrefix(fn.Name, "fmt.")
}

// TestGoFunctionsOwn symbolizes an address of the test program, which go test strips.
func TestGoFunctionsOwn(t *testing.T) {
	ps := newProcesses(t)
	addr := uint64(funcAddress())
	f := ps.name(os.Getpid(), addr)
	if !strings.HasSuffix(f.Name, "/internal/stack.funcAddress") {
		t.Errorf("got %#v", f)
	}
}

// TestGoFunctionsUncertain checks that a table is rejected if the address of its functions is
// uncertain.
func TestGoFunctionsUncertain(t *testing.T) {
	bare := stripped(t, buildGo(t, goProgram, []string{"CGO_ENABLED=0"}))
	m := openTestImage(t, bare)
	if found, _ := m.goFunctions(); found == nil {
		t.Fatal("no table")
	}
	m.Entry += 16
	if found, _ := m.goFunctions(); found != nil {
		t.Error("accepted a table although the entry point is inside a function")
	}
	m = openTestImage(t, bare)
	m.Section(".text").Size /= 2
	if found, _ := m.goFunctions(); found != nil {
		t.Error("accepted a table with functions outside the code")
	}
}

// TestGoFunctionsRelocated clears values for which there are relocations. GNU ld writes both, other
// linkers only the relocations.
func TestGoFunctionsRelocated(t *testing.T) {
	need(t, "gcc")
	full := buildGo(t, cgoProgram, []string{"CGO_ENABLED=1"}, "-buildmode=pie")
	bare := stripped(t, full)
	module := openTestImage(t, bare).Section(".go.module")
	data, err := os.ReadFile(bare)
	if err != nil {
		t.Fatal(err)
	}
	clear(data[module.Offset : module.Offset+module.Size])
	if err := os.WriteFile(bare, data, 0o755); err != nil {
		t.Fatal(err)
	}
	checkGoTable(t, full, bare)
}

// TestGoFunctionsOlder builds programs with the older Go toolchains in the module cache.
func TestGoFunctionsOlder(t *testing.T) {
	need(t, "go", "gcc")
	pattern := filepath.Join(strings.TrimSpace(run(t, "go", "env", "GOMODCACHE")),
		"golang.org/toolchain@v0.0.1-go*."+runtime.GOOS+"-"+runtime.GOARCH)
	dirs, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) == 0 {
		t.Skip("no older Go toolchain: no file matches " + pattern)
	}
	for _, dir := range dirs {
		_, version, _ := strings.Cut(strings.TrimSuffix(dir, "."+runtime.GOOS+"-"+runtime.GOARCH), "v0.0.1-")
		for _, mode := range []string{"exe", "pie"} {
			for cgo, source := range map[string]string{"0": goProgram, "1": cgoProgram} {
				t.Run(version+" "+mode+" cgo="+cgo, func(t *testing.T) {
					full := buildGo(t, source, []string{"CGO_ENABLED=" + cgo, "GOTOOLCHAIN=" + version}, "-buildmode="+mode)
					checkGoTable(t, full, stripped(t, full))
				})
			}
		}
	}
}

func TestFindPclntab(t *testing.T) {
	header := "\xf1\xff\xff\xff\x00\x00\x01\x08"
	tests := []struct {
		data string
		want int
	}{
		{"", -1},
		{header, 0},
		{header[:7], -1},
		{strings.Repeat("\x00", 16) + header, 16},
		{"\x00" + header + "\x00\x00\x00\x00\x00\x00\x00" + header, 16}, // the first one is not aligned
		{"\xff\xff\xff\x00\x00\x00\x00\x00" + header, 8},
		{"\xf2\xff\xff\xff\x00\x00\x01\x08", -1},
		{"\xf1\xff\xff\xff\x00\x00\x03\x08", -1},
		{"\xf1\xff\xff\xff\x00\x00\x01\x04", -1},
	}
	for _, test := range tests {
		if got := findPclntab([]byte(test.data)); got != test.want {
			t.Errorf("%x: got %d, want %d", test.data, got, test.want)
		}
	}
}

// makePclntab returns a table of two functions, one from 0x10 to 0x30 and two from 0x30 to 0x40, in
// the format with a magic byte.
func makePclntab(magic byte) []byte {
	le := binary.LittleEndian
	word := func(b []byte, v uint64) []byte { return le.AppendUint64(b, v) }
	names := []byte("one\x00two\x00")
	b := []byte{magic, 0xff, 0xff, 0xff, 0, 0, 1, 8}
	var parts []uint64 // after the header: number of functions and files, text start, and the offsets of the parts
	size := 8
	switch magic {
	case go118, go120:
		size = 4
		parts = []uint64{2, 1, 0, 72, 80, 80, 80, 80}
	case go116:
		parts = []uint64{2, 1, 64, 72, 72, 72, 72}
	default:
		parts = []uint64{2}
	}
	for _, p := range parts {
		b = word(b, p)
	}
	nameBase, recordBase := 0, 0
	if magic != go12 {
		b = append(b, names...)
		recordBase = len(b)
	}
	field := func(b []byte, v int) []byte {
		if size == 4 {
			return le.AppendUint32(b, uint32(v))
		}
		return word(b, uint64(v))
	}
	records := len(b) + 5*size - recordBase
	if magic == go12 {
		nameBase = len(b) + 5*size + 2*(size+4)
	}
	for _, v := range []int{0x10, records, 0x30, records + size + 4, 0x40} {
		b = field(b, v)
	}
	b = le.AppendUint32(field(b, 0x10), uint32(nameBase))
	b = le.AppendUint32(field(b, 0x30), uint32(nameBase+4))
	if magic == go12 {
		b = append(b, names...)
	}
	return append(b, make([]byte, 64)...)
}

func TestParsePclntab(t *testing.T) {
	for _, magic := range []byte{go12, go116, go118, go120} {
		table := parsePclntab(makePclntab(magic), binary.LittleEndian)
		if table == nil {
			t.Errorf("%x: no table", magic)
			continue
		}
		base := uint64(0)
		if table.relative {
			base = 0x1000
		}
		if want := magic == go118 || magic == go120; table.relative != want {
			t.Errorf("%x: relative %t, want %t", magic, table.relative, want)
		}
		functions := table.table(base)
		for addr, want := range map[uint64]string{0xf: "", 0x10: "one", 0x2f: "one", 0x30: "two", 0x3f: "two", 0x40: ""} {
			if got := functions.at(base + addr); got != want {
				t.Errorf("%x: %#x: got %q, want %q", magic, addr, got, want)
			}
		}
	}
}

func FuzzPclntab(f *testing.F) {
	for _, magic := range []byte{go12, go116, go118, go120} {
		f.Add(makePclntab(magic))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if at := findPclntab(data); at >= 0 {
			data = data[at:]
		}
		if table := parsePclntab(data, binary.LittleEndian); table != nil {
			table.first()
			table.table(table.last())
		}
	})
}
