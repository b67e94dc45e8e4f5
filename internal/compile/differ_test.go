package compile

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// evaluator evaluates expressions in Go, as the reference for the compiled code.
type evaluator struct {
	p    *node
	args [6]uint64 // a to f
}

// num is a value and its signedness. void means that the expression has no value.
type num struct {
	bits   uint64
	signed bool
	void   bool
}

func (v *evaluator) name(name string) num {
	raw := v.args[name[0]-'a']
	switch name {
	case "a":
		return num{raw, true, false}
	case "b":
		return num{raw, false, false}
	case "c":
		return num{uint64(int32(raw)), true, false}
	case "d":
		return num{uint64(uint32(raw)), true, false}
	case "e":
		return num{uint64(int8(raw)), true, false}
	}
	return num{uint64(uint16(raw)), true, false}
}

// member follows p->next->…->name.
func (v *evaluator) member(e *memberExpr) num {
	n, ok := v.node(e.x)
	if !ok {
		return num{void: true}
	}
	switch e.name {
	case "value":
		return num{uint64(n.Value), true, false}
	case "small":
		return num{uint64(n.Small), true, false}
	case "byte":
		return num{uint64(n.Byte), true, false}
	case "half":
		return num{uint64(n.Half), true, false}
	case "wide":
		return num{n.Wide, false, false}
	case "low":
		return num{uint64(n.Bits & 7), true, false}
	case "high":
		return num{uint64(int64(n.Bits) << 56 >> 59), true, false}
	}
	panic(e.name)
}

func (v *evaluator) node(e Expr) (*node, bool) {
	m, ok := e.(*memberExpr)
	if !ok {
		return v.p, v.p != nil
	}
	n, ok := v.node(m.x)
	if !ok || m.name == "broken" {
		return nil, false
	}
	return n.Next, n.Next != nil
}

func (v *evaluator) eval(e Expr) num {
	switch e := e.(type) {
	case *numberExpr:
		return num{e.value, int64(e.value) >= 0, false}
	case *nameExpr:
		return v.name(e.name)
	case *memberExpr:
		return v.member(e)
	case *castExpr:
		return cast(strings.Join(e.to.words, " "), v.eval(e.x))
	case *unaryExpr:
		return unary(e.op, v.eval(e.x))
	case *binaryExpr:
		x := v.eval(e.x)
		if x.void {
			return x
		}
		if e.op == "&&" && x.bits == 0 {
			return truth(false)
		}
		if e.op == "||" && x.bits != 0 {
			return truth(true)
		}
		y := v.eval(e.y)
		if y.void {
			return y
		}
		return binaryOf(e.op, x, y)
	}
	panic(fmt.Sprintf("%T", e))
}

func truth(b bool) num {
	if b {
		return num{1, true, false}
	}
	return num{0, true, false}
}

func cast(to string, x num) num {
	switch to {
	case "u8":
		return num{uint64(uint8(x.bits)), true, x.void}
	case "short":
		return num{uint64(int16(x.bits)), true, x.void}
	case "int":
		return num{uint64(int32(x.bits)), true, x.void}
	case "u64":
		return num{x.bits, false, x.void}
	case "long":
		return num{x.bits, true, x.void}
	case "bool":
		b := truth(x.bits != 0)
		b.void = x.void
		return b
	}
	panic(to)
}

func unary(op string, x num) num {
	switch {
	case x.void:
	case op == "!":
		return truth(x.bits == 0)
	case op == "-":
		x.bits = -x.bits
	case op == "~":
		x.bits = ^x.bits
	}
	return x
}

func binaryOf(op string, x, y num) num {
	signed := x.signed && y.signed
	less := x.bits < y.bits
	if signed {
		less = int64(x.bits) < int64(y.bits)
	}
	switch op {
	case "&&", "||":
		return truth(y.bits != 0)
	case "==":
		return truth(x.bits == y.bits)
	case "!=":
		return truth(x.bits != y.bits)
	case "<":
		return truth(less)
	case ">=":
		return truth(!less)
	case ">":
		return truth(!less && x.bits != y.bits)
	case "<=":
		return truth(less || x.bits == y.bits)
	case "+":
		return num{x.bits + y.bits, signed, false}
	case "-":
		return num{x.bits - y.bits, signed, false}
	case "*":
		return num{x.bits * y.bits, signed, false}
	case "&":
		return num{x.bits & y.bits, signed, false}
	case "|":
		return num{x.bits | y.bits, signed, false}
	case "^":
		return num{x.bits ^ y.bits, signed, false}
	case "<<":
		return num{x.bits << (y.bits & 63), x.signed, false}
	case ">>":
		if x.signed {
			return num{uint64(int64(x.bits) >> (y.bits & 63)), true, false}
		}
		return num{x.bits >> (y.bits & 63), false, false}
	}
	return divided(op == "/", x, y, signed)
}

func divided(quotient bool, x, y num, signed bool) num {
	switch {
	case y.bits == 0:
		return num{void: true}
	case signed && int64(y.bits) == -1 && quotient: // covers the overflow of math.MinInt64 / -1
		return num{-x.bits, true, false}
	case signed && quotient:
		return num{uint64(int64(x.bits) / int64(y.bits)), true, false}
	case signed && int64(y.bits) == -1:
		return num{0, true, false}
	case signed:
		return num{uint64(int64(x.bits) % int64(y.bits)), true, false}
	case quotient:
		return num{x.bits / y.bits, false, false}
	}
	return num{x.bits % y.bits, false, false}
}

// random returns a random expression, fully parenthesized.
func random(r *rand.Rand, depth int) string {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	if depth == 0 || r.IntN(6) == 0 {
		switch r.IntN(4) {
		case 0:
			return pick("0", "1", "2", "7", "255", "-1", "0x80000000", "0x7fffffffffffffff", "0xffffffffffffffff", "'a'")
		case 1:
			return pick("p", "p->next", "p->next->next", "p->broken") + "->" + pick("value", "small", "byte", "half", "wide", "low", "high")
		}
		return pick("a", "b", "c", "d", "e", "f")
	}
	switch r.IntN(5) {
	case 0:
		return "(" + pick("-", "!", "~") + random(r, depth-1) + ")"
	case 1:
		return "((" + pick("u8", "short", "int", "u64", "long", "bool") + ")" + random(r, depth-1) + ")"
	}
	op := pick("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=", "&&", "||")
	return "(" + random(r, depth-1) + " " + op + " " + random(r, depth-1) + ")"
}

func numbers(r *rand.Rand) (args [6]uint64) {
	interesting := []uint64{0, 1, 2, 63, 127, 128, 255, 1 << 31, 1<<31 - 1, 1 << 63, 1<<63 - 1, 1<<64 - 1, 1<<64 - 100}
	for i := range args {
		args[i] = interesting[r.IntN(len(interesting))]
		if r.IntN(3) == 0 {
			args[i] = r.Uint64()
		}
	}
	return args
}

// compare compares the results of the compiled expression and of the evaluator.
func compare(t *testing.T, r *rand.Rand, text string) {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m, _, err := load(t, &Program{Fields: []Field{{Name: "x", Expr: e}}}, testScope())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer m.prog.Close()
	defer m.out.Close()
	n := sample()
	for range 8 {
		args := numbers(r)
		want := (&evaluator{n, args}).eval(e)
		var mask uint64
		if !want.void {
			mask = 1
		}
		_, out := m.runOn(t, n, mask, args[:]...)
		missing, got := binary.NativeEndian.Uint64(out) != 0, binary.NativeEndian.Uint64(out[8:])
		if missing != want.void || !missing && got != want.bits {
			t.Errorf("%s of %x = %#x (missing: %v), want %#x (%v)", text, args, got, missing, want.bits, want.void)
		}
	}
}

// Compiled expressions have the same values as in Go, and lack one in the same cases.
func TestDifferential(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	n := 300
	if testing.Short() {
		n = 50
	}
	for range n {
		compare(t, r, random(r, 1+r.IntN(5)))
	}
}

// FuzzDifferential generates expressions from the seed.
func FuzzDifferential(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		compare(t, r, random(r, 6))
	})
}

// FuzzCompile checks that the verifier accepts every expression that compiles.
func FuzzCompile(f *testing.F) {
	for _, text := range []string{
		"p->value == -100 && p->array[2] > 1", `p->text == "x" || comm != "y"`, "(int)a >> 3 % b", "*(u16 *)p", "&p->next->value", "-~!c", "'x' + 0x10",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		p := &Program{Where: []Expr{e}, Fields: []Field{{"x", e, false}, {"y", e, true}}, TextSize: 16}
		if _, err := Compile(fetchName, p, testScope()); err != nil {
			p.Fields = p.Fields[:1]
		}
		m, _, err := load(t, p, testScope())
		if err != nil {
			return
		}
		m.prog.Close()
		m.out.Close()
	})
}
