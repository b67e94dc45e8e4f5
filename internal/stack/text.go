package stack

import (
	"path"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AppendText appends one line per frame, in the given order: four spaces and the name, as in
// libbpf-tools. A frame without a name is module+0xoffset with the reason and the build-id. Verbose
// adds the address in front, and offset, module and source position at the end.
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
			dst = f.appendReason(dst)
		}
		dst = append(dst, '\n')
	}
	return dst
}

// AppendFolded appends the frames outermost first, separated by semicolons, with the suffix _[k]
// for kernel functions and _[i] for inlined functions, as flame graph programs expect. A frame
// without a name is module+0xoffset, without the directory of the module.
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

// String returns the name, or module+0xoffset. Terminal control sequences are escaped.
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

// appendPlace appends offset, module and source position of a frame that has a name.
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

// appendReason appends why the frame has no name, and the build-id.
func (f *Frame) appendReason(dst []byte) []byte {
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

// base returns the last element of a path. Other names are returned unchanged.
func base(module string) string {
	if strings.HasPrefix(module, "/") {
		return path.Base(module)
	}
	return module
}

// appendSafe appends s and escapes non-printable characters, such as terminal control sequences and
// direction marks, and invalid UTF-8, because symbols are from untrusted files. In folded text a
// semicolon ends a frame, so a semicolon in a name becomes a colon, as in other programs that write
// this format.
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
