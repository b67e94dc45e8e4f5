package usdt

import (
	"strconv"
	"strings"
)

// arm64 parses an operand: 5, x0, w1, [x29, -16], [sp], [x0, x1], [x0, w1, sxtw 3].
func (a *Arg) arm64(text string) error {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a.Kind = Memory
		return checkArg(ok && a.arm64Address(strings.Split(inner, ",")))
	}
	if n, ok := number(strings.TrimPrefix(text, "#")); ok {
		a.Kind, a.Disp = Constant, n
		return nil
	}
	if text == "xzr" || text == "wzr" {
		a.Kind = Constant
		return nil
	}
	a.Kind, a.Base = Register, arm64Reg(text)
	return checkArg(a.Base != nil)
}

// arm64Address parses a base register, optionally followed by a displacement or by an index
// with an extension.
func (a *Arg) arm64Address(parts []string) bool {
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if a.Base = arm64Reg(parts[0]); a.Base == nil || len(parts) > 3 {
		return false
	}
	if len(parts) == 1 {
		return true
	}
	if n, ok := number(strings.TrimPrefix(parts[1], "#")); ok {
		a.Disp = n
		return len(parts) == 2
	}
	if a.Index = arm64Reg(parts[1]); a.Index == nil {
		return false
	}
	return len(parts) == 2 || a.arm64Extend(strings.Fields(parts[2]))
}

// arm64Extend parses "lsl 3", "sxtw" or "uxtw #2".
func (a *Arg) arm64Extend(words []string) bool {
	if len(words) == 0 || len(words) > 2 {
		return false
	}
	switch words[0] {
	case "lsl", "uxtw", "sxtx":
	case "sxtw":
		a.Index.Signed = true
	default:
		return false
	}
	if len(words) == 1 {
		return true
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(words[1], "#"), 10, 8)
	a.Shift = uint8(n)
	return err == nil && n <= 4
}

// arm64Reg returns the register with the given name, or nil. Its offset is that in struct
// user_pt_regs, the first member of struct pt_regs.
func arm64Reg(name string) *Reg {
	switch name {
	case "sp":
		return &Reg{Offset: 8 * 31, Size: 8}
	case "fp":
		name = "x29"
	case "lr":
		name = "x30"
	}
	if len(name) < 2 || name[0] != 'x' && name[0] != 'w' {
		return nil
	}
	n, err := strconv.ParseUint(name[1:], 10, 8)
	if err != nil || n > 30 || strconv.FormatUint(n, 10) != name[1:] {
		return nil
	}
	if name[0] == 'w' {
		return &Reg{Offset: uint16(8 * n), Size: 4}
	}
	return &Reg{Offset: uint16(8 * n), Size: 8}
}
