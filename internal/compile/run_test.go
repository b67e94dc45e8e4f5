package compile

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"
)

// node is a struct that the tests' pointer p points to; its layout is nodeType's.
type node struct {
	Next   *node
	Value  int32
	Small  int8
	Byte   uint8
	Half   uint16
	Wide   uint64
	Bits   uint32 // low 3 bits, then 5 signed ones
	Array  [4]int32
	Name   [16]byte
	_      uint32
	Text   *byte
	Broken uint64 // points nowhere
}

func nodeType() *btf.Struct {
	n := &btf.Struct{Name: "node", Size: uint32(unsafe.Sizeof(node{}))}
	var v node
	char := ints()["char"]
	at := func(offset uintptr) btf.Bits { return btf.Bits(offset * 8) }
	n.Members = []btf.Member{
		{Name: "next", Type: &btf.Pointer{Target: n}, Offset: at(unsafe.Offsetof(v.Next))},
		{Name: "value", Type: ints()["int"], Offset: at(unsafe.Offsetof(v.Value))},
		{Name: "small", Type: ints()["s8"], Offset: at(unsafe.Offsetof(v.Small))},
		{Type: &btf.Union{Size: 1, Members: []btf.Member{{Name: "byte", Type: ints()["u8"]}}}, Offset: at(unsafe.Offsetof(v.Byte))},
		{Name: "half", Type: &btf.Typedef{Name: "half", Type: ints()["u16"]}, Offset: at(unsafe.Offsetof(v.Half))},
		{Name: "wide", Type: ints()["u64"], Offset: at(unsafe.Offsetof(v.Wide))},
		{Name: "low", Type: ints()["u32"], Offset: at(unsafe.Offsetof(v.Bits)), BitfieldSize: 3},
		{Name: "high", Type: ints()["int"], Offset: at(unsafe.Offsetof(v.Bits)) + 3, BitfieldSize: 5},
		{Name: "array", Type: &btf.Array{Type: ints()["int"], Nelems: 4}, Offset: at(unsafe.Offsetof(v.Array))},
		{Name: "name", Type: &btf.Array{Type: char, Nelems: 16}, Offset: at(unsafe.Offsetof(v.Name))},
		{Name: "text", Type: &btf.Pointer{Target: char}, Offset: at(unsafe.Offsetof(v.Text))},
		{Name: "broken", Type: &btf.Pointer{Target: n}, Offset: at(unsafe.Offsetof(v.Broken))},
	}
	return n
}

// testScope has an argument of each type that matters in a register of its own.
func testScope() *Scope {
	vars := map[string]Var{"p": Word(&btf.Pointer{Target: nodeType()}, 0)}
	for i, name := range []string{"long", "u64", "int", "u32", "s8", "u16"} {
		vars[string(rune('a'+i))] = Word(ints()[name], 8*(i+1))
	}
	return &Scope{Vars: vars, Constants: func(name string) (int64, bool) { return -7, name == "SEVEN_BELOW" }}
}

// machine runs compiled programs.
type machine struct {
	out  *ebpf.Map
	prog *ebpf.Program
}

const fetchName = "fetch"

func load(t testing.TB, p *Program, scope *Scope) (*machine, *Result, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to load BPF programs")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	r, err := Compile(fetchName, p, scope)
	if err != nil {
		return nil, nil, err
	}
	m := &machine{}
	m.out, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(r.Room), MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.out.Close() })
	insns := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, m.out.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "exit"),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Reg(asm.R2, asm.R0),
		asm.Call.Label(fetchName),
		asm.Return().WithSymbol("exit"),
	}
	insns[0] = insns[0].WithSymbol("main")
	body := append(asm.Instructions{}, r.Body...)
	body[0] = body[0].WithSymbol(fetchName)
	m.prog, err = ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.RawTracepoint, Instructions: append(insns, body...), License: "GPL"})
	if err != nil {
		var v *ebpf.VerifierError
		if errors.As(err, &v) {
			t.Fatalf("verifier: %+v", v)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { m.prog.Close() })
	return m, r, nil
}

// run returns what the program returns and writes.
func (m *machine) run(t testing.TB, args ...uint64) (ret uint32, out []byte) {
	t.Helper()
	ret, err := m.prog.Run(&ebpf.RunOptions{Context: args})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.out.Lookup(uint32(0), &out); err != nil {
		t.Fatal(err)
	}
	return ret, out
}

// compute compiles one expression and computes it.
func compute(t testing.TB, text string, args ...uint64) (value uint64, ok bool) {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m, _, err := load(t, &Program{Fields: []Field{{Name: "x", Expr: e}}}, testScope())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	_, out := m.run(t, args...)
	return binary.NativeEndian.Uint64(out[8:]), binary.NativeEndian.Uint64(out) == 0
}

func text(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// sample is a list of two nodes.
func sample() *node {
	tail := &node{Value: -2, Text: text("tail")}
	n := &node{
		Next: tail, Value: -100, Small: -5, Byte: 250, Half: 65535, Wide: 1 << 63, Bits: 5 | 0x1d<<3,
		Array: [4]int32{10, -20, 30, -40}, Text: text("hello"), Broken: 8,
	}
	copy(n.Name[:], "a name")
	return n
}

func address(p any) uint64 {
	switch p := p.(type) {
	case *node:
		return uint64(uintptr(unsafe.Pointer(p)))
	case *byte:
		return uint64(uintptr(unsafe.Pointer(p)))
	}
	panic("no address")
}

func TestMemory(t *testing.T) {
	n := sample()
	minus := func(n uint64) uint64 { return -n }
	for text, want := range map[string]uint64{
		"p->value":             minus(100),
		"p->small":             minus(5),
		"p->byte":              250,
		"p->half":              65535,
		"p->wide":              1 << 63,
		"p->low":               5,
		"p->high":              minus(3),
		"p->next->value":       minus(2),
		"p->next->next == 0":   1,
		"p->array[1]":          minus(20),
		"p->array[p->low - 2]": minus(40),
		"*p->array":            10,
		"(*p).value":           minus(100),
		"p[0].value":           minus(100),
		"*&p->value":           minus(100),
		"p->text[1]":           'e',
		"p->name[0] == 'a'":    1,
		"p->value == -100":     1,
		"p->value < 0":         1,
		"p->byte == -6":        0,
		"(s8)p->byte == -6":    1,
		"SEVEN_BELOW - 1":      minus(8),
		`p->text == "hello"`:   1,
		`p->text == "hell"`:    0,
		`p->text == "hello!"`:  0,
		`p->text != "hello"`:   0,
		`"a name" == p->name`:  1,
		`p->name == "a name, which is longer than the array is"`: 0,
		`p->next->text == "tail" && p->low == 5`:                 1,
		`STRCMP("hello", p->text)`:                               1,
		"p->next->next && p->next->next->value == 1":             0,
		"!p->next->next || p->next->next->value == 1":            1,
		"p == " + "0": 0,
	} {
		if got, ok := compute(t, text, address(n)); !ok || got != want {
			t.Errorf("%s is %d, %v, want %d", text, int64(got), ok, int64(want))
		}
	}
	for _, text := range []string{
		"p->next->next->value", "p->broken->value", "p->value / 0", "p->value % (p->low - 5)",
		`p->next->next->text == "x"`, "p->broken->low", "1 + p->broken->value",
	} {
		if got, ok := compute(t, text, address(n)); ok {
			t.Errorf("%s has the value %d", text, got)
		}
	}
}

func TestBuiltins(t *testing.T) {
	for text, want := range map[string]uint64{
		"pid": uint64(os.Getpid()), "$pid": uint64(os.Getpid()), "uid": uint64(os.Getuid()), "gid": uint64(os.Getgid()),
	} {
		if got, ok := compute(t, text, 0); !ok || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, ok, want)
		}
	}
}

func TestWhereAndText(t *testing.T) {
	n := sample()
	where, err := Parse(`p->text == "hello"`)
	if err != nil {
		t.Fatal(err)
	}
	var fields []Field
	for _, text := range []string{"p->text", "p->name", "comm", "p->next->next->text"} {
		e, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, Field{text, e, true})
	}
	m, r, err := load(t, &Program{Where: []Expr{where}, Fields: fields, TextSize: 20}, testScope())
	if err != nil {
		t.Fatal(err)
	}
	ret, out := m.run(t, address(n))
	if missing := binary.NativeEndian.Uint64(out); ret != 1 || missing != 1<<3 {
		t.Errorf("returns %d, missing %b", ret, missing)
	}
	for i, want := range []string{"hello", "a name"} {
		s := r.Slots[i]
		length := binary.NativeEndian.Uint64(out[s.Offset:])
		if got := string(out[s.Offset+8:][:length-1]); got != want {
			t.Errorf("%s is %q", s.Name, got)
		}
	}
	if ret, _ := m.run(t, address(n.Next)); ret != 0 {
		t.Error("the condition holds for another text")
	}
	if ret, _ := m.run(t, 0); ret != 0 {
		t.Error("a condition without a value holds")
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "ends too early",
		"1 +":                           "ends too early",
		"(1":                            `")" is missing`,
		"1 2":                           `"2" is not expected`,
		"nobody":                        "nobody is not known here (there are: a, b, c,",
		"p->nothing":                    "has no member nothing",
		"a->b":                          "points to none",
		"p->value.x":                    "points to none",
		"*a":                            "has no elements",
		`"x"`:                           "can only be compared",
		`a == "x"`:                      "",
		`c == "x"`:                      "no string",
		"comm":                          "can only be compared or shown",
		"-p->name":                      "is no number",
		"&a":                            "has no address",
		"&p->low":                       "no address",
		"f(1)":                          "no function f",
		"(struct foo *)a":               "not known",
		"1 @ 2":                         "no expression has that",
		`"x`:                            "does not end",
		"0x":                            "is not a number",
		"'ab'":                          "does not end",
		strings.Repeat("(", 1000):       "nested too deeply",
		strings.Repeat("-", 1000) + "1": "nested too deeply",
		"a+(a+(a+(a+(a+(a+(a+(a+(a+(a+(a+a))))))))))": "too many operators",
	} {
		e, err := Parse(text)
		if err == nil {
			_, err = Compile(fetchName, &Program{Fields: []Field{{Expr: e}}}, testScope())
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %v, want %q", text, err, want)
		}
		if err != nil && errors.Is(err, ErrSyntax) == errors.Is(err, ErrType) {
			t.Errorf("%.50s: %v is of no kind", text, err)
		}
	}
}
