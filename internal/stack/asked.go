package stack

import (
	"strconv"
	"strings"
)

// kernelSymbol is the symbol of an address.
type kernelSymbol struct {
	name, module string
	offset       uint64
	padding      bool
}

// Ask lets Append ask symbol for symbols. It returns the symbol of an address as the kernel prints it
// with %pS: NAME+0xOFFSET/0xSIZE, and " [MODULE]" for a module; otherwise the address alone. That
// takes microseconds, reading /proc/kallsyms about 0.1 s. Append reads the file for addresses that
// symbol does not know, such as those of ftrace's trampolines.
func (k *Kernel) Ask(symbol func(addr uint64) (string, error)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ask, k.known = symbol, map[uint64]kernelSymbol{}
}

// resolveAsked sets the symbol of f and reports whether the kernel knows one.
func (k *Kernel) resolveAsked(f *Frame, isReturn bool) bool {
	if k.ask == nil {
		return false
	}
	var s kernelSymbol
	ok := false
	if isReturn { // see lookup
		s, ok = k.askFor(f.Addr - 1)
		s.offset++
	}
	if !ok || s.padding {
		s, ok = k.askFor(f.Addr)
	}
	if !ok {
		return false
	}
	f.Name, f.Module, f.Offset, f.Reason = s.name, s.module, s.offset, Named
	return true
}

// askFor returns the symbol of an address. It remembers those of the kernel itself, which never change.
func (k *Kernel) askFor(addr uint64) (kernelSymbol, bool) {
	const maxKnown = 1 << 14
	if s, ok := k.known[addr]; ok {
		return s, true
	}
	text, err := k.ask(addr)
	if err != nil { // the next ones would fail as well
		k.ask = nil
		return kernelSymbol{}, false
	}
	s, ok := parseSymbol(text)
	if ok && s.module == "[kernel]" {
		if len(k.known) >= maxKnown {
			clear(k.known)
		}
		k.known[addr] = s
	}
	return s, ok
}

// parseSymbol parses NAME+0xOFFSET/0xSIZE [MODULE]. BPF programs have no module there, but [bpf] in
// /proc/kallsyms.
func parseSymbol(text string) (s kernelSymbol, ok bool) {
	text, s.module, ok = strings.Cut(text, " [")
	if ok {
		s.module = "[" + s.module
	} else {
		s.module = "[kernel]"
	}
	plus := strings.LastIndex(text, "+0x")
	if plus < 1 {
		return kernelSymbol{}, false
	}
	offset, _, ok := strings.Cut(text[plus+len("+0x"):], "/")
	n, err := strconv.ParseUint(offset, 16, 64)
	if !ok || err != nil {
		return kernelSymbol{}, false
	}
	name := text[:plus]
	if isProgram(name) {
		s.module = "[bpf]"
	}
	s.name, s.offset, s.padding = demangle(name), n, isPadding(name)
	return s, true
}

// isProgram reports whether a symbol is that of a BPF program, bpf_prog_TAG[_NAME], or of a trampoline.
func isProgram(name string) bool {
	const tag = 16 // hexadecimal digits
	if id, ok := strings.CutPrefix(name, "bpf_trampoline_"); ok {
		return id != "" && id[0] >= '0' && id[0] <= '9'
	}
	rest, ok := strings.CutPrefix(name, "bpf_prog_")
	if !ok || len(rest) < tag {
		return false
	}
	_, err := strconv.ParseUint(rest[:tag], 16, 64)
	return err == nil
}
