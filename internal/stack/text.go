package stack

import (
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendText appends one line a frame in the order given: four spaces and the
// name, as libbpf-tools print it. A frame without a name is written as
// module+0xoffset with the reason and the build-id. Verbose puts the address
// before it and the offset, the module and the source position behind it.
func AppendText(dst []byte, frames []Frame, verbose bool) []byte {
	for i := range frames {
		f := &frames[i]
		dst = append(dst, "    "...)
		if verbose {
			dst = appendAddr(dst, f.Addr)
		}
		dst = f.appendLabel(dst, f.Module, false)
		if verbose {
			dst = f.appendPlace(dst)
		}
		if f.Name == "" {
			dst = f.appendWhy(dst)
		}
		dst = append(dst, '\n')
	}
	return dst
}

// AppendFolded appends the frames outermost first, joined by semicolons, with
// _[k] behind kernel functions and _[i] behind inlined ones: the form that
// flame graph programs read. A frame without a name is written as
// module+0xoffset, without the directory of the module.
func AppendFolded(dst []byte, frames []Frame) []byte {
	for i := len(frames) - 1; i >= 0; i-- {
		f := &frames[i]
		dst = f.appendLabel(dst, base(f.Module), true)
		switch {
		case f.Kernel:
			dst = append(dst, "_[k]"...)
		case f.Inlined:
			dst = append(dst, "_[i]"...)
		}
		if i > 0 {
			dst = append(dst, ';')
		}
	}
	return dst
}

// String returns the name, or module+0xoffset, safe for a terminal.
func (f Frame) String() string {
	return string(f.appendLabel(nil, f.Module, false))
}

func (f *Frame) appendLabel(dst []byte, module string, folded bool) []byte {
	if f.Name != "" {
		return appendSafe(dst, f.Name, folded)
	}
	if module == "" {
		return strconv.AppendUint(append(dst, "0x"...), f.Addr, 16)
	}
	dst = appendSafe(dst, module, folded)
	return strconv.AppendUint(append(dst, "+0x"...), f.Offset, 16)
}

// appendPlace says more of a frame that has a name.
func (f *Frame) appendPlace(dst []byte) []byte {
	if f.Name == "" {
		return dst
	}
	dst = strconv.AppendUint(append(dst, "+0x"...), f.Offset, 16)
	dst = append(dst, " ("...)
	dst = append(appendSafe(dst, f.Module, false), ')')
	if f.File != "" {
		dst = appendSafe(append(dst, ' '), f.File, false)
		dst = strconv.AppendInt(append(dst, ':'), int64(f.Line), 10)
	}
	if f.Inlined {
		dst = append(dst, " inlined"...)
	}
	return dst
}

func (f *Frame) appendWhy(dst []byte) []byte {
	dst = append(dst, " ("...)
	dst = append(dst, f.Reason.String()...)
	if f.BuildID != "" {
		dst = append(dst, ", build-id "...)
		dst = append(dst, f.BuildID...)
	}
	return append(dst, ')')
}

func appendAddr(dst []byte, addr uint64) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, "0x"...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, digits[addr>>shift&15])
	}
	return append(dst, ' ')
}

// base is the last element of a file, and all of a name that is no path.
func base(module string) string {
	if strings.HasPrefix(module, "/") {
		return path.Base(module)
	}
	return module
}

// appendSafe appends s with everything escaped that a terminal may act on or
// that would change what the eye reads (controls, direction marks, broken
// UTF-8). Symbols come from files that anybody may have written. In folded
// text a semicolon ends a frame, so one within a name becomes a colon, as in
// every program that writes the form.
func appendSafe(dst []byte, s string, folded bool) []byte {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = appendHex(dst, s[i])
		case r == ';' && folded:
			dst = append(dst, ':')
		case r == '\\':
			dst = append(dst, `\\`...)
		case strconv.IsPrint(r):
			dst = append(dst, s[i:i+n]...)
		default:
			quoted := strconv.AppendQuoteRuneToASCII(nil, r)
			dst = append(dst, quoted[1:len(quoted)-1]...)
		}
		i += n
	}
	return dst
}

func appendHex(dst []byte, c byte) []byte {
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'x', digits[c>>4], digits[c&15])
}
