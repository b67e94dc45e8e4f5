package compile

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// node is the struct that the argument p points to. nodeType returns its BTF.
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
	Broken uint64 // pointer to memory that is not mapped
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

// testScope has one argument of each relevant type.
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
	return newMachine(t, r.Body, r.BufferSize, &ebpf.ProgramSpec{Type: ebpf.RawTracepoint}), r, nil
}

// newMachine loads a program of the type and with the flags of spec, which calls fetch.
func newMachine(t testing.TB, fetch asm.Instructions, bufferSize int, spec *ebpf.ProgramSpec) *machine {
	t.Helper()
	m := &machine{}
	var err error
	m.out, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(bufferSize), MaxEntries: 1})
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
	body := append(asm.Instructions{}, fetch...)
	body[0] = body[0].WithSymbol(fetchName)
	spec.Instructions, spec.License = append(insns, body...), "GPL"
	m.prog, err = ebpf.NewProgram(spec)
	if err != nil {
		var v *ebpf.VerifierError
		if errors.As(err, &v) {
			t.Fatalf("verifier: %+v", v)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { m.prog.Close() })
	return m
}

// runOn runs a program that reads a node. A program cannot read a page that is not resident, and
// the kernel may move any page of this process temporarily. Therefore the node is touched first,
// and the run is repeated while a field in mask has no value.
func (m *machine) runOn(t testing.TB, n *node, mask uint64, args ...uint64) (ret uint32, out []byte) {
	t.Helper()
	for range 100 {
		n.touch()
		ret, out = m.run(t, append([]uint64{address(n)}, args...)...)
		if binary.NativeEndian.Uint64(out)&mask == 0 {
			break
		}
	}
	return ret, out
}

// touch reads all memory of the node.
func (n *node) touch() {
	for ; n != nil; n = n.Next {
		runtime.KeepAlive(*n)
		if n.Text != nil {
			runtime.KeepAlive(*n.Text)
		}
	}
}

// run returns the return value and the output of the program.
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

// compute compiles and runs an expression. ok is false if it has no value; hasValue is the
// expectation.
func compute(t testing.TB, text string, n *node, hasValue bool) (value uint64, ok bool) {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m, _, err := load(t, &Program{Fields: []Field{{Name: "x", Expr: e}}}, testScope())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var mask uint64
	if hasValue {
		mask = 1
	}
	_, out := m.runOn(t, n, mask)
	return binary.NativeEndian.Uint64(out[8:]), binary.NativeEndian.Uint64(out) == 0
}

func text(s string) *byte {
	b := append([]byte(s), 0)
	return &b[0]
}

// sample returns a list of two nodes.
func sample() *node {
	tail := &node{Value: -2, Text: text("tail")}
	n := &node{
		Next: tail, Value: -100, Small: -5, Byte: 250, Half: 65535, Wide: 1 << 63, Bits: 5 | 0x1d<<3,
		Array: [4]int32{10, -20, 30, -40}, Text: text("hello"), Broken: 0x8000,
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
	panic("unsupported type")
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
		if got, ok := compute(t, text, n, true); !ok || got != want {
			t.Errorf("%s = %d, %v, want %d", text, int64(got), ok, int64(want))
		}
	}
	for _, text := range []string{
		"p->next->next->value", "p->broken->value", "p->value / 0", "p->value % (p->low - 5)",
		`p->next->next->text == "x"`, "p->broken->low", "1 + p->broken->value",
	} {
		if got, ok := compute(t, text, n, false); ok {
			t.Errorf("%s = %d, want no value", text, got)
		}
	}
}

func TestBuiltins(t *testing.T) {
	for text, want := range map[string]uint64{
		"pid": uint64(os.Getpid()), "$PID": uint64(os.Getpid()), "$tgid": uint64(os.Getpid()), "uid": uint64(os.Getuid()), "gid": uint64(os.Getgid()),
	} {
		if got, ok := compute(t, text, nil, true); !ok || got != want {
			t.Errorf("%s = %d, %v, want %d", text, got, ok, want)
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
	ret, out := m.runOn(t, n, ^uint64(1<<3))
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
	if ret, _ := m.runOn(t, n.Next, 0); ret != 0 {
		t.Error("condition is true for a different text")
	}
	if ret, _ := m.run(t, 0); ret != 0 {
		t.Error("condition without a value is true")
	}
}

// A hit is unread if memory that a condition needs could not be read, unless another condition is
// false. A null pointer is never read.
func TestUnread(t *testing.T) {
	n := sample()
	for text, want := range map[string]uint32{
		"p->broken->value == 1":                     Unread,
		"p->broken->value != 1":                     Unread,
		"!p->broken->value":                         Unread,
		`p->broken->text == "hello"`:                Unread,
		"p->broken->value == 1 && p->value == -100": Unread,
		"p->broken->value == 1 && p->value == 5":    Unwanted,
		"p->value == 5 && p->broken->value == 1":    Unwanted,
		"p->value == -100 || p->broken->value == 1": Wanted,
		"p->broken->value == 1 && p->value / 0":     Unwanted,
		"p->value / 0":                              Unwanted,
		"p->next->next->value == 1":                 Unwanted,
		`p->next->next->text == "x"`:                Unwanted,
	} {
		where, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		m, _, err := load(t, &Program{Where: []Expr{where}}, testScope())
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var got uint32
		for range 100 { // the kernel may move a page temporarily, see runOn
			n.touch()
			if got, _ = m.run(t, address(n)); got == want {
				break
			}
		}
		if got != want {
			t.Errorf("%s: result %d, want %d", text, got, want)
		}
	}
}

// A sleepable program reads pages that are not resident, so that expressions have their values.
func TestSleepable(t *testing.T) {
	if err := features.HaveProgramType(ebpf.Syscall); errors.Is(err, ebpf.ErrNotSupported) {
		t.Skip("needs programs of type syscall (5.14), the only sleepable ones that a test can run")
	}
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(memory)
	f, err := os.CreateTemp(t.TempDir(), "node")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, size := sample(), int(unsafe.Sizeof(node{}))
	start := address((*node)(unsafe.Pointer(&memory[0])))
	n.Next, n.Text = nil, nil
	content := make([]byte, 4*page)
	copy(content, unsafe.Slice((*byte)(unsafe.Pointer(n)), size))
	binary.NativeEndian.PutUint64(content[unsafe.Offsetof(n.Next):], start)
	binary.NativeEndian.PutUint64(content[unsafe.Offsetof(n.Text):], start+uint64(2*page-3))
	copy(content[2*page-3:], "hello")
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]uint32{
		"p->value == -100": Wanted, "p->high == -3": Wanted, "p->next->small == -5": Wanted, "p->byte == 1": Unwanted,
		`p->text == "hello"`: Wanted, `p->next->text == "hell"`: Unwanted, `p->name == "a name"`: Wanted,
		"p->broken->value == 1": Unread,
	} {
		where, err := Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		scope := testScope()
		scope.UserFirst = true
		r, err := Compile(fetchName, &Program{Where: []Expr{where}}, scope)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		m := newMachine(t, r.Sleepable, r.BufferSize, &ebpf.ProgramSpec{Type: ebpf.Syscall, Flags: unix.BPF_F_SLEEPABLE})
		// A new mapping has no pages. It replaces the old one.
		if _, err := unix.MmapPtr(int(f.Fd()), 0, unsafe.Pointer(&memory[0]), uintptr(len(memory)),
			unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
			t.Fatal(err)
		}
		if got, _ := m.run(t, start); got != want {
			t.Errorf("%s: result %d, want %d", text, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "unexpected end",
		"1 +":                           "unexpected end",
		"(1":                            `missing ")"`,
		"1 2":                           `unexpected "2"`,
		"nobody":                        "unknown name nobody (available: a, b, c,",
		"p->nothing":                    "has no member nothing",
		"a->b":                          "neither a struct nor a pointer",
		"p->value.x":                    "neither a struct nor a pointer",
		"*a":                            "neither a pointer nor an array",
		`"x"`:                           "strings support only ==",
		`a == "x"`:                      "",
		`c == "x"`:                      "neither a string nor an address",
		"comm":                          "comm supports only ==",
		"-p->name":                      "is not a number",
		"&a":                            "has no address",
		"&p->low":                       "no address",
		"f(1)":                          `unknown function f: only STRCMP("text", value) can be called`,
		"STRCMP(1)":                     `STRCMP needs a string and a value`,
		"(struct foo *)a":               "unknown type struct foo",
		"1 # 2":                         "unexpected character",
		`"x`:                            "unterminated string",
		"0x":                            "is not a number",
		"'ab'":                          "invalid character literal",
		strings.Repeat("(", 1000):       "nested too deeply",
		strings.Repeat("-", 1000) + "1": "nested too deeply",
		"a+(a+(a+(a+(a+(a+(a+(a+(a+(a+(a+a))))))))))": "too many nested operators",
	} {
		e, err := Parse(text)
		if err == nil {
			_, err = Compile(fetchName, &Program{Fields: []Field{{Expr: e}}}, testScope())
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %v, want %q", text, err, want)
		}
		if err != nil && errors.Is(err, ErrSyntax) == errors.Is(err, ErrType) {
			t.Errorf("%.50s: %v is not exactly one of %v and %v", text, err, ErrSyntax, ErrType)
		}
	}
}
