package usdt

import (
	"debug/elf"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrArg is returned for an argument in an unsupported form, such as one in a floating-point
// register.
var ErrArg = errors.New("unsupported argument")

// Kind is the kind of location of an argument.
type Kind uint8

// The kinds of locations.
const (
	Constant Kind = iota // the value is Disp
	Register             // the value is in Base
	Memory               // the address is Base + Index<<Shift + Disp; Base and Index are optional
)

// Arg is the location and type of an argument.
type Arg struct {
	Kind Kind
	// Size is 1, 2, 4 or 8 bytes. Signed arguments are sign-extended.
	Size   uint8
	Signed bool
	// Base and Index are registers, or nil.
	Base, Index *Reg
	// Shift is the number of bits by which the index is shifted left.
	Shift uint8
	Disp  int64
}

// Reg is a register or a part of it.
type Reg struct {
	// Offset is the offset of the whole register in struct pt_regs.
	Offset uint16
	// Size is the number of bytes used. Shift is the number of bits below these (8 for ah
	// on x86). A Signed index is sign-extended.
	Size, Shift uint8
	Signed      bool
}

// args parses the arguments of a probe at addr: "-4@%eax 8@$5".
func (r *reader) args(text string, addr uint64) ([]Arg, error) {
	var args []Arg
	for _, arg := range operands(text) {
		a, err := r.arg(arg, addr)
		if err != nil {
			return nil, fmt.Errorf("parse argument %d, %q: %w", len(args)+1, arg, err)
		}
		args = append(args, a)
	}
	return args, nil
}

// operands splits the arguments of a probe.
func operands(text string) (all []string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		var arg string
		arg, text = cutArg(text)
		all = append(all, arg)
	}
	return all
}

// cutArg splits text after the first argument. Arguments of arm64 contain spaces within
// brackets.
func cutArg(text string) (arg, rest string) {
	depth := 0
	for i, c := range text {
		switch {
		case strings.ContainsRune("[(", c):
			depth++
		case strings.ContainsRune("])", c):
			depth--
		case c == ' ' && depth == 0:
			return text[:i], text[i:]
		}
	}
	return text, ""
}

// arg parses SIZE@OPERAND. A negative size denotes a signed type. Old compilers omit the
// size, which is then 8.
func (r *reader) arg(text string, addr uint64) (Arg, error) {
	size, operand, ok := strings.Cut(text, "@")
	if !ok {
		size, operand = "8", text
	}
	n, err := strconv.ParseInt(size, 10, 8)
	if err != nil {
		return Arg{}, ErrArg // "8f": floating point
	}
	a := Arg{Size: uint8(max(n, -n)), Signed: n < 0}
	if a.Size != 1 && a.Size != 2 && a.Size != 4 && a.Size != 8 {
		return Arg{}, ErrArg
	}
	if r.file.Machine == elf.EM_AARCH64 {
		return a, a.arm64(operand)
	}
	return a, r.x86(&a, operand, addr)
}

// number parses a 64-bit decimal, hexadecimal or octal number, signed or unsigned.
func number(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return n, true
	}
	n, err := strconv.ParseUint(text, 0, 64)
	return int64(n), err == nil
}
