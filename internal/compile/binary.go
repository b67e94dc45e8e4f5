package compile

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// binary evaluates a binary expression to R0.
func (g *generator) binary(e *binaryExpr) (btf.Type, error) {
	switch e.op {
	case "&&", "||":
		return flagType(), g.logical(e)
	case "==", "!=":
		if done, err := g.compareText(e); done || err != nil {
			return flagType(), err
		}
	}
	left, err := g.arithmetic(e.x)
	if err != nil {
		return nil, err
	}
	if err := g.push(); err != nil {
		return nil, err
	}
	right, err := g.arithmetic(e.y)
	if err != nil {
		return nil, err
	}
	g.pop(asm.R1)
	l, _ := scalarOf(left)
	r, _ := scalarOf(right)
	return g.operate(e.op, l.signed, l.signed && r.signed)
}

// operate computes R1 op R0 to R0. leftSigned means that R1 is signed, signed that both
// operands are.
func (g *generator) operate(op string, leftSigned, signed bool) (btf.Type, error) {
	t := ulongType()
	if signed {
		t = longType()
	}
	switch op {
	case "==", "!=", "<", "<=", ">", ">=":
		g.compare(jump(op, signed))
		return flagType(), nil
	case "/", "%":
		g.divide(op == "/", signed)
		return t, nil
	case "<<", ">>":
		if t = ulongType(); leftSigned {
			t = longType()
		}
		g.emit(asm.And.Imm(asm.R0, 63))
	}
	alu := map[string]asm.ALUOp{
		"+": asm.Add, "-": asm.Sub, "*": asm.Mul, "&": asm.And, "|": asm.Or, "^": asm.Xor, "<<": asm.LSh, ">>": asm.RSh,
	}[op]
	if op == ">>" && leftSigned {
		alu = asm.ArSh
	}
	g.emit(alu.Reg(asm.R1, asm.R0), asm.Mov.Reg(asm.R0, asm.R1))
	return t, nil
}

func jump(op string, signed bool) asm.JumpOp {
	if signed {
		return map[string]asm.JumpOp{"==": asm.JEq, "!=": asm.JNE, "<": asm.JSLT, "<=": asm.JSLE, ">": asm.JSGT, ">=": asm.JSGE}[op]
	}
	return map[string]asm.JumpOp{"==": asm.JEq, "!=": asm.JNE, "<": asm.JLT, "<=": asm.JLE, ">": asm.JGT, ">=": asm.JGE}[op]
}

func (g *generator) compare(op asm.JumpOp) {
	yes := g.label()
	g.emit(
		asm.Mov.Imm(asm.R2, 1),
		op.Reg(asm.R1, asm.R0, yes),
		asm.Mov.Imm(asm.R2, 0),
	)
	g.mark(yes)
	g.emit(asm.Mov.Reg(asm.R0, asm.R2))
}

// divide computes R0 = R1 / R0 or R1 % R0 as in C: the quotient is rounded towards zero, and
// the remainder has the sign of the dividend. BPF has signed division only since 6.6, so the
// division is unsigned and the sign is set afterwards. Division by zero has no value.
func (g *generator) divide(quotient, signed bool) {
	g.emit(asm.JEq.Imm(asm.R0, 0, g.none), asm.Mov.Imm(asm.R2, 0))
	if signed {
		g.absolute(asm.R1, true)
		g.absolute(asm.R0, quotient)
	}
	if quotient {
		g.emit(asm.Div.Reg(asm.R1, asm.R0))
	} else {
		g.emit(asm.Mod.Reg(asm.R1, asm.R0))
	}
	if signed {
		positive := g.label()
		g.emit(asm.JEq.Imm(asm.R2, 0, positive), asm.Neg.Imm(asm.R1, 0))
		g.mark(positive)
	}
	g.emit(asm.Mov.Reg(asm.R0, asm.R1))
}

// absolute replaces reg by its absolute value. If flip is set, a negative value inverts R2,
// the sign of the result.
func (g *generator) absolute(reg asm.Register, flip bool) {
	positive := g.label()
	g.emit(asm.JSGE.Imm(reg, 0, positive), asm.Neg.Imm(reg, 0))
	if flip {
		g.emit(asm.Xor.Imm(asm.R2, 1))
	}
	g.mark(positive)
}

// logical evaluates && and ||, with short-circuit evaluation.
func (g *generator) logical(e *binaryExpr) error {
	if err := g.condition(e.x); err != nil {
		return err
	}
	decided := g.label()
	if e.op == "&&" {
		g.emit(asm.JEq.Imm(asm.R0, 0, decided))
	} else {
		g.emit(asm.JNE.Imm(asm.R0, 0, decided))
	}
	if err := g.condition(e.y); err != nil {
		return err
	}
	g.mark(decided)
	return nil
}

// compareText emits the comparison if one operand is a string literal, and reports whether
// it did.
func (g *generator) compareText(e *binaryExpr) (done bool, err error) {
	for _, sides := range [][2]Expr{{e.x, e.y}, {e.y, e.x}} {
		s, ok := sides[1].(*stringExpr)
		if !ok {
			continue
		}
		if err := g.equalText(sides[0], s.value); err != nil {
			return true, err
		}
		if e.op == "!=" {
			g.emit(asm.Xor.Imm(asm.R0, 1))
		}
		return true, nil
	}
	return false, nil
}

// textMax is the maximum length of a string literal.
const textMax = 120

// equalText sets R0 to 1 if the text equals want, else to 0. It reads two bytes more than
// the length of want: the NUL, and one to detect a longer text.
func (g *generator) equalText(e Expr, want string) error {
	if len(want) > textMax {
		return fmt.Errorf("%w: string of %d bytes is too long, the maximum is %d", ErrType, len(want), textMax)
	}
	size, bufferSize := len(want)+2, (max(len(want)+2, commSize)+7)&^7
	g.textNeed = max(g.textNeed, bufferSize)
	for at := 0; at < bufferSize; at += 8 {
		g.zero(regOut, g.text+at)
	}
	var t btf.Type
	if err := g.readText(e, regOut, g.text, size, &t); err != nil {
		return err
	}
	g.compareBytes(append([]byte(want), 0))
	return nil
}

// binaryText parses bytes in the syntax of C: "{0x6c, 0, 'x'}".
func binaryText(text string) (want []byte, ok bool) {
	inner, isOpen := strings.CutPrefix(strings.TrimSpace(text), "{")
	inner, isClosed := strings.CutSuffix(inner, "}")
	if !isOpen || !isClosed {
		return nil, false
	}
	for word := range strings.SplitSeq(inner, ",") {
		tokens, err := lex(word)
		if err != nil || len(tokens) != 2 || tokens[0].kind != tokenNumber || tokens[0].num > 0xff {
			return nil, false
		}
		want = append(want, byte(tokens[0].num))
	}
	return want, true
}

// equalBytes sets R0 to 1 if the memory that an address points to has these bytes, else to 0.
func (g *generator) equalBytes(e Expr, want []byte) error {
	if len(want) > textMax {
		return fmt.Errorf("%w: %d bytes are too many, the maximum is %d", ErrType, len(want), textMax)
	}
	g.textNeed = max(g.textNeed, (len(want)+7)&^7)
	t, err := g.value(e)
	if err != nil {
		return err
	}
	if s, ok := scalarOf(t); ok && s.size != 8 {
		return fmt.Errorf("%w: %s is not an address", ErrType, describe(t))
	}
	if err := g.readMemory(regOut, g.text, int32(len(want)), asm.FnProbeReadKernel, asm.FnProbeReadUser, asm.JEq); err != nil {
		return err
	}
	g.compareBytes(want)
	return nil
}

// compareBytes sets R0 to 1 if the bytes at text are those of want, else to 0.
func (g *generator) compareBytes(bytes []byte) {
	different, end := g.label(), g.label()
	for at := 0; at < len(bytes); {
		size := chunk(len(bytes) - at)
		var c uint64
		for i := range int(size.Sizeof()) {
			c |= uint64(bytes[at+i]) << (8 * i)
		}
		g.emit(
			asm.LoadMem(asm.R1, regOut, int16(g.text+at), size),
			asm.LoadImm(asm.R2, int64(c), asm.DWord),
			asm.JNE.Reg(asm.R1, asm.R2, different),
		)
		at += size.Sizeof()
	}
	g.emit(asm.Mov.Imm(asm.R0, 1), asm.Ja.Label(end))
	g.mark(different)
	g.emit(asm.Mov.Imm(asm.R0, 0))
	g.mark(end)
}

// chunk returns the largest load size of at most n bytes.
func chunk(n int) asm.Size {
	switch {
	case n >= 8:
		return asm.DWord
	case n >= 4:
		return asm.Word
	case n >= 2:
		return asm.Half
	}
	return asm.Byte
}
