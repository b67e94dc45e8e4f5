package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// builder creates sections for tests.
type builder struct {
	types []*btfType
	names *table
}

func newBuilder() *builder { return &builder{[]*btfType{nil}, newTable()} }

// add adds a type. target is its third word: a size or a type.
func (b *builder) add(kind uint32, name string, target uint32, words []uint32, entries ...entry) uint32 {
	b.types = append(b.types, &btfType{
		head: [3]uint32{b.names.add(name), kind<<24 | uint32(len(entries)), target}, words: words, entries: entries,
	})
	return uint32(len(b.types) - 1)
}

func (b *builder) member(name string, typ, bits uint32) entry {
	return entry{b.names.add(name), typ, bits}
}

// names returns the names of the entries of the type with that name, or nil if there is no such type.
func names(t *testing.T, section []byte, name string) []string {
	t.Helper()
	types, words, err := parseTypes(section)
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range types[1:] {
		if text(words, typ.head[0]) != name {
			continue
		}
		out := []string{}
		for _, e := range typ.entries {
			out = append(out, text(words, e[0]))
		}
		return out
	}
	return nil
}

// sample returns an object that reads two members of a kernel struct of four, and has a map.
func sample() (types, ext []byte) {
	b := newBuilder()
	u32 := b.add(kindInt, "u32", 4, []uint32{32})
	inner := b.add(kindStruct, "inner", 8, nil, b.member("x", u32, 0), b.member("y", u32, 32))
	other := b.add(kindStruct, "other", 4, nil, b.member("z", u32, 0))
	toOther := b.add(kindPtr, "", other, nil)
	kernel := b.add(kindStruct, "kernel", 28, nil,
		b.member("a", u32, 0), b.member("next", toOther, 64), b.member("in", inner, 128), b.member("last", u32, 192))
	toKernel := b.add(kindPtr, "", kernel, nil)
	color := b.add(kindEnum, "color", 4, nil, entry{b.names.add("RED"), 0}, entry{b.names.add("BLUE"), 1})
	b.add(kindStruct, "unused", 4, nil, b.member("u", u32, 0))

	value := b.add(kindStruct, "value", 16, nil, b.member("n", u32, 0), b.member("task", toKernel, 64))
	definition := b.add(kindStruct, "", 8, nil, b.member("value", b.add(kindPtr, "", value, nil), 0))
	entries := b.add(kindVar, "entries", definition, []uint32{1})
	b.add(kindDatasec, ".maps", 8, nil, entry{entries, 0, 8})
	proto := b.add(kindFuncProto, "", u32, nil, entry{b.names.add("ctx"), toKernel})
	program := b.add(kindFunc, "program", proto, nil)
	signature := b.add(kindFuncProto, "", 0, nil, entry{b.names.add(""), toOther}, entry{b.names.add(""), u32})
	hook := b.add(kindTypedef, "hook", b.add(kindPtr, "", signature, nil), nil)

	records := func(all ...[]uint32) infos {
		return infos{uint32(4 * len(all[0])), []section{{b.names.add("tp_btf/x"), all}}}
	}
	all := [parts]infos{
		records([]uint32{0, program}),
		records(
			[]uint32{0, b.names.add("x.c"), b.names.add("int program()"), 1 << 10},
			[]uint32{8, b.names.add("x.c"), b.names.add("return 0;"), 2 << 10},
		),
		records(
			[]uint32{0, kernel, b.names.add("0:2:1"), 0}, // in.y
			[]uint32{8, kernel, b.names.add("0:1"), 0},   // next
			[]uint32{16, color, b.names.add("1"), enumValue},
			[]uint32{24, hook, b.names.add("0"), typeExists},
		),
	}
	return formatTypes(b.types, b.names.data), formatExt(all)
}

func TestSlim(t *testing.T) {
	types, ext, err := slim(sample())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"kernel": {"next", "in"}, "inner": {"y"}, "color": {"BLUE"}, "value": {"n", "task"}, "unused": nil, "other": {},
	} {
		if got := names(t, types, name); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	all, err := parseExt(ext)
	if err != nil {
		t.Fatal(err)
	}
	parsed, words, err := parseTypes(types)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, r := range all[relocations].all() {
		paths = append(paths, text(words, parsed[r[1]].head[0])+" "+text(words, r[2]))
	}
	if want := []string{"kernel 0:1:0", "kernel 0:0", "color 0", "hook 0"}; !slices.Equal(paths, want) {
		t.Errorf("relocations are %q, want %q", paths, want)
	}
	if got := shape(parsed, all[relocations].all()[3][1]); got != "typedef>pointer>function(pointer>struct, int)" {
		t.Errorf("hook is %s", got)
	}
	if r := all[functions].all()[0]; text(words, parsed[r[1]].head[0]) != "program" {
		t.Errorf("function is %q", text(words, parsed[r[1]].head[0]))
	}
	if r := all[lines].all(); len(r) != 1 || text(words, r[0][2]) != "int program()" || bytes.Contains(words, []byte("return 0;")) {
		t.Errorf("lines %v, want the first one only", r)
	}
}

// shape returns the kinds that a type leads to.
func shape(types []*btfType, id uint32) string {
	if id == 0 {
		return "void"
	}
	switch t := types[id]; t.kind() {
	case kindTypedef:
		return "typedef>" + shape(types, t.head[2])
	case kindPtr:
		return "pointer>" + shape(types, t.head[2])
	case kindFuncProto:
		var params []string
		for _, e := range t.entries {
			params = append(params, shape(types, e[1]))
		}
		return "function(" + strings.Join(params, ", ") + ")"
	case kindStruct:
		return "struct"
	}
	return "int"
}

// TestObjects checks that the committed objects have been slimmed: doing it again changes nothing.
func TestObjects(t *testing.T) {
	files, err := filepath.Glob("../../tools/*/bpf_*_bpfel.o.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects: %v", err)
	}
	for _, file := range files {
		types, ext := objectSections(t, file)
		if ext == nil {
			continue
		}
		again, againExt, err := slim(types, ext)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !bytes.Equal(again, types) || !bytes.Equal(againExt, ext) {
			t.Errorf("%s: %d and %d bytes, %d and %d after slimming", file, len(types), len(ext), len(again), len(againExt))
		}
	}
}

func objectSections(t *testing.T, file string) (types, ext []byte) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(path, plain, 0o600); err != nil {
		t.Fatal(err)
	}
	if types, ext, err = sections(path); err != nil {
		t.Fatal(err)
	}
	return types, ext
}
