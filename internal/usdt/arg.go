package usdt

import (
	"debug/elf"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrArg is returned for an argument in a form that is not understood, such as one in a
// register of floating point numbers.
var ErrArg = errors.New("argument is not understood")

// Kind is where an argument is.
type Kind uint8

// The kinds of arguments.
const (
	Constant Kind = iota // its value is Disp
	Register             // in Base
	Memory               // at Base + Index<<Shift + Disp, each if there
)

// Arg is where an argument lies, and of what type it is.
type Arg struct {
	Kind Kind
	// Size is 1, 2, 4 or 8 bytes. A Signed one is negative where its highest bit is set.
	Size   uint8
	Signed bool
	// Base and Index are registers, or nil.
	Base, Index *Reg
	// Shift is by how many bits the index is shifted to the left.
	Shift uint8
	Disp  int64
}

// Reg is a part of a register.
type Reg struct {
	// Offset is that of the whole register in struct pt_regs.
	Offset uint16
	// Size is how many bytes of it count, Shift how many bits are below these (8 for
	// x86's ah). A Signed one is an index that is extended by its sign.
	Size, Shift uint8
	Signed      bool
}

// args reads the arguments of a probe at the address: "-4@%eax 8@$5".
func (r *reader) args(text string, addr uint64) ([]Arg, error) {
	var args []Arg
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		var one string
		one, text = cutArg(text)
		a, err := r.arg(one, addr)
		if err != nil {
			return nil, fmt.Errorf("argument %d, %q: %w", len(args)+1, one, err)
		}
		args = append(args, a)
	}
	return args, nil
}

// cutArg cuts off the first argument. arm64 has blanks within brackets.
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

// arg reads SIZE@OPERAND, where a negative size is that of a signed type. Old compilers
// leave the size out: then it is that of the register, or of a word.
func (r *reader) arg(text string, addr uint64) (Arg, error) {
	size, operand, ok := strings.Cut(text, "@")
	if !ok {
		size, operand = "8", text
	}
	n, err := strconv.ParseInt(size, 10, 8)
	if err != nil {
		return Arg{}, ErrArg // "8f": a floating point number
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

// number reads a decimal, hexadecimal or octal number of 64 bits, of either sign.
func number(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return n, true
	}
	n, err := strconv.ParseUint(text, 0, 64)
	return int64(n), err == nil
}
