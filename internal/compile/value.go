package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Types of constants and of the results of operators.
func longType() *btf.Int  { return &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed} }
func ulongType() *btf.Int { return &btf.Int{Name: "unsigned long", Size: 8} }
func flagType() *btf.Int  { return &btf.Int{Name: "bool", Size: 1, Encoding: btf.Bool} }

// value evaluates an expression to R0, extended to 64 bits.
func (g *generator) value(e Expr) (btf.Type, error) {
	switch e := e.(type) {
	case *numberExpr:
		g.emit(asm.LoadImm(asm.R0, int64(e.value), asm.DWord))
		if int64(e.value) < 0 {
			return ulongType(), nil
		}
		return longType(), nil
	case *nameExpr:
		return g.named(e.name)
	case *unaryExpr:
		return g.unary(e)
	case *binaryExpr:
		return g.binary(e)
	case *castExpr:
		return g.cast(e)
	case *callExpr:
		return g.call(e)
	case *memberExpr:
		if IsName(e.x, "args") && g.scope.isRecord("args") { // BCC's name of the context
			return g.named(e.name)
		}
		if IsName(e.x, "ctx") && g.scope.isRecord("ctx") {
			v, err := g.scope.register(e.name)
			if err != nil {
				return nil, err
			}
			return v.Type, g.loadVar(&v)
		}
		m, bits, err := g.address(e)
		if err != nil {
			return nil, err
		}
		return m.Type, g.load(m, bits)
	case *indexExpr:
		m, bits, err := g.address(e)
		if err != nil {
			return nil, err
		}
		return m.Type, g.load(m, bits)
	}
	return nil, fmt.Errorf("%w: strings support only == and !=", ErrType)
}

func (g *generator) named(name string) (btf.Type, error) {
	v, ok := g.find(name)
	switch {
	case ok && v.comm:
		return nil, fmt.Errorf("%w: %s supports only == and !=", ErrType, name)
	case ok:
		return v.Type, g.loadVar(&v)
	case name == "$task":
		v, err := g.scope.task()
		if err != nil {
			return nil, err
		}
		return v.Type, g.loadVar(&v)
	}
	if g.scope.Constants != nil {
		if c, ok := g.scope.Constants(name); ok {
			g.emit(asm.LoadImm(asm.R0, c, asm.DWord))
			return longType(), nil
		}
	}
	if g.scope.Unknown != nil && strings.HasPrefix(name, "arg") {
		return nil, fmt.Errorf("%w: %s: %w", ErrType, name, g.scope.Unknown)
	}
	return nil, fmt.Errorf("%w: unknown name %s (available: %s)", ErrType, name, g.scope.names())
}

// loadVar loads a variable to R0.
func (g *generator) loadVar(v *Var) error {
	if v.emit != nil {
		if err := v.emit(g); err != nil {
			return err
		}
	}
	g.emit(v.load...)
	if s, ok := scalarOf(v.Type); ok {
		g.narrow(s)
	}
	return nil
}

func (g *generator) find(name string) (Var, bool) {
	if v, ok := g.scope.Vars[name]; ok {
		return v, true
	}
	v, ok := builtins()[name]
	return v, ok
}

func (g *generator) unary(e *unaryExpr) (btf.Type, error) {
	switch e.op {
	case "&":
		m, bits, err := g.address(e.x)
		if err != nil {
			return nil, err
		}
		if m.BitfieldSize != 0 || bits%8 != 0 {
			return nil, fmt.Errorf("%w: a bit field has no address", ErrType)
		}
		g.emit(asm.Add.Imm(asm.R0, int32(bits/8)))
		return &btf.Pointer{Target: m.Type}, nil
	case "*":
		m, bits, err := g.address(e)
		if err != nil {
			return nil, err
		}
		return m.Type, g.load(m, bits)
	case "!":
		if err := g.condition(e.x); err != nil {
			return nil, err
		}
		g.emit(asm.Xor.Imm(asm.R0, 1))
		return flagType(), nil
	}
	t, err := g.arithmetic(e.x)
	if err != nil {
		return nil, err
	}
	if e.op == "-" {
		g.emit(asm.Neg.Imm(asm.R0, 0))
	} else {
		g.emit(asm.Xor.Imm(asm.R0, -1))
	}
	return t, nil
}

// arithmetic evaluates an operand and converts its type to long or unsigned long.
func (g *generator) arithmetic(e Expr) (btf.Type, error) {
	t, err := g.value(e)
	if err != nil {
		return nil, err
	}
	s, ok := scalarOf(t)
	if !ok {
		return nil, fmt.Errorf("%w: %s is not a number", ErrType, describe(t))
	}
	if s.size == 8 && !s.signed {
		return ulongType(), nil
	}
	return longType(), nil
}

func describe(t btf.Type) string { return fmt.Sprintf("%v", t) }

// condition evaluates an expression to 1 or 0 in R0.
func (g *generator) condition(e Expr) error {
	t, err := g.value(e)
	if err != nil {
		return err
	}
	if _, ok := scalarOf(t); !ok {
		return fmt.Errorf("%w: %s is not a condition", ErrType, describe(t))
	}
	g.truth()
	return nil
}

// truth sets R0 to 1 unless it is 0.
func (g *generator) truth() {
	end := g.label()
	g.emit(asm.JEq.Imm(asm.R0, 0, end), asm.Mov.Imm(asm.R0, 1))
	g.mark(end)
}

func (g *generator) cast(e *castExpr) (btf.Type, error) {
	to, err := e.to.resolve(g.scope.Types)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrType, err)
	}
	s, ok := scalarOf(to)
	if !ok {
		return nil, fmt.Errorf("%w: cannot cast to %s", ErrType, describe(to))
	}
	t, err := g.value(e.x)
	if err != nil {
		return nil, err
	}
	_, isArray := btf.UnderlyingType(t).(*btf.Array)
	if _, ok := scalarOf(t); !ok && !isArray {
		return nil, fmt.Errorf("%w: cannot cast %s", ErrType, describe(t))
	}
	if i, ok := to.(*btf.Int); ok && i.Encoding == btf.Bool {
		g.truth()
		return to, nil
	}
	g.narrow(s)
	return to, nil
}

// narrow truncates R0 to the size of s and extends it to 64 bits.
func (g *generator) narrow(s scalar) {
	if s.size >= 8 || s.size == 0 {
		return
	}
	shift := int32(64 - 8*s.size)
	g.emit(asm.LSh.Imm(asm.R0, shift))
	if s.signed {
		g.emit(asm.ArSh.Imm(asm.R0, shift))
	} else {
		g.emit(asm.RSh.Imm(asm.R0, shift))
	}
}

// call compiles a function call. The only functions are STRCMP and $entry of BCC.
func (g *generator) call(e *callExpr) (btf.Type, error) {
	if e.name == "$entry" && g.scope.Entry != nil && len(e.args) == 1 {
		name, ok := e.args[0].(*nameExpr)
		if !ok {
			return nil, fmt.Errorf("%w: $entry needs the name of an argument, as in $entry(size)", ErrType)
		}
		v, err := g.scope.Entry(name.name)
		if err != nil {
			return nil, err
		}
		return v.Type, g.loadVar(&v)
	}
	if e.name == "STRCMP" && len(e.args) == 2 {
		i := slices.IndexFunc(e.args, func(a Expr) bool { _, ok := a.(*stringExpr); return ok })
		if i >= 0 && g.scope.Binary {
			if want, ok := binaryText(e.args[i].(*stringExpr).value); ok {
				return flagType(), g.equalBytes(e.args[1-i], want)
			}
		}
		if i >= 0 {
			return flagType(), g.equalText(e.args[1-i], e.args[i].(*stringExpr).value)
		}
	}
	if e.name == "STRCMP" {
		return nil, fmt.Errorf(`%w: STRCMP needs a string and a value, as in STRCMP("text", arg1)`, ErrType)
	}
	return nil, fmt.Errorf(`%w: unknown function %s: only STRCMP("text", value) can be called`, ErrType, e.name)
}
