package usdt

import (
	"math/bits"
	"strconv"
	"strings"
)

// x86 parses an operand in AT&T syntax: $5, %eax, -8(%rbp), 8(%rax,%rdx,4), name+4(%rip).
func (r *reader) x86(a *Arg, text string, addr uint64) error {
	switch {
	case text == "":
		return ErrArg
	case strings.HasPrefix(text, "$"):
		n, ok := number(text[1:])
		a.Kind, a.Disp = Constant, n
		return checkArg(ok)
	case strings.HasPrefix(text, "%"):
		a.Kind, a.Base = Register, x86Reg(text)
		return checkArg(a.Base != nil)
	}
	a.Kind = Memory
	disp, inner, hasInner := strings.Cut(text, "(")
	if hasInner && !strings.HasSuffix(inner, ")") {
		return ErrArg
	}
	parts := strings.Split(strings.TrimSuffix(inner, ")"), ",")
	if !a.x86Registers(parts) {
		return ErrArg
	}
	base, ok := r.displacement(disp)
	if !ok {
		return ErrArg
	}
	a.Disp = base
	if strings.TrimSpace(parts[0]) == "%rip" && !isNumber(disp) {
		// The operand denotes the address of the symbol, but Base holds that of the probe.
		a.Disp -= int64(addr)
	}
	return nil
}

// checkArg returns ErrArg unless ok is true.
func checkArg(ok bool) error {
	if !ok {
		return ErrArg
	}
	return nil
}

func isNumber(text string) bool {
	_, ok := number(text)
	return ok || text == ""
}

// x86Registers parses "%rax", "%rax,%rdx,4" or ",%rdx,8".
func (a *Arg) x86Registers(parts []string) bool {
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if parts[0] != "" {
		if a.Base = x86Reg(parts[0]); a.Base == nil {
			return false
		}
	}
	if len(parts) > 1 {
		if a.Index = x86Reg(parts[1]); a.Index == nil {
			return false
		}
	}
	if len(parts) > 2 {
		scale, err := strconv.ParseUint(parts[2], 10, 8)
		if err != nil || bits.OnesCount64(scale) != 1 || scale > 8 {
			return false
		}
		a.Shift = uint8(bits.TrailingZeros64(scale))
	}
	return len(parts) <= 3
}

// displacement parses "", "-8", "name", "name+4" or "4+name".
func (r *reader) displacement(text string) (int64, bool) {
	var sum int64
	for _, term := range terms(text) {
		if n, ok := number(term); ok {
			sum += n
			continue
		}
		addr, ok := r.symbol(strings.TrimPrefix(term, "+"))
		if !ok {
			return 0, false
		}
		sum += int64(addr)
	}
	return sum, true
}

// terms splits "name+4-8" into "name", "+4" and "-8".
func terms(text string) []string {
	var all []string
	for text = strings.TrimSpace(text); text != ""; {
		end := strings.IndexAny(text[1:], "+-") + 1
		if end == 0 {
			end = len(text)
		}
		all = append(all, text[:end])
		text = text[end:]
	}
	return all
}

// x86Words are the 16-bit names of the registers in the order of struct pt_regs.
var x86Words = strings.Fields("r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp")

// Registers returns the names of the registers of x86 in the order of struct pt_regs.
func Registers() []string { return x86Words }

// x86Reg returns the register with the given name, such as "%eax", or nil.
func x86Reg(text string) *Reg {
	name, ok := strings.CutPrefix(text, "%")
	if !ok {
		return nil
	}
	for i, word := range x86Words {
		if size, shift := x86Part(name, word); size != 0 {
			return &Reg{Offset: uint16(8 * i), Size: size, Shift: shift}
		}
	}
	return nil
}

// x86Part returns the part of the register word that name denotes, or size 0 if name is not
// a part of it.
func x86Part(name, word string) (size, shift uint8) {
	if word[0] == 'r' { // r8 to r15
		switch name {
		case word:
			return 8, 0
		case word + "d":
			return 4, 0
		case word + "w":
			return 2, 0
		case word + "b":
			return 1, 0
		}
		return 0, 0
	}
	switch name {
	case "r" + word:
		return 8, 0
	case "e" + word:
		return 4, 0
	case word:
		return 2, 0
	case word + "l", strings.TrimSuffix(word, "x") + "l":
		return 1, 0
	case strings.TrimSuffix(word, "x") + "h":
		if strings.HasSuffix(word, "x") {
			return 1, 8
		}
	}
	return 0, 0
}
