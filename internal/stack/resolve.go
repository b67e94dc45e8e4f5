package stack

import (
	"slices"
	"strings"
)

// located is a frame, and the module and offset where its address was looked up.
type located struct {
	Frame
	module *module // nil if the address is not in a module
	offset uint64  // file offset
	at     place
}

// locate symbolizes an address with the mappings that were sampled with the stack. It returns false
// if none of them contains the address, or if that is not of an executable file.
func (ps *Processes) locate(p *process, addr uint64, exact bool, code []Code) (l located, ok bool) {
	pc := addr
	if !exact {
		pc--
	}
	if l, ok = ps.locateAt(p, addr, pc, code); !ok || l.Name != "" || exact {
		return l, ok
	}
	// If a signal handler interrupted a function, it returns to the start of a trampoline, which no
	// call precedes.
	if t, ok := ps.locateAt(p, addr, addr, code); ok {
		if t.Offset == 0 && isTrampoline(t.Name) {
			ps.cache.release(l.module)
			return t, true
		}
		ps.cache.release(t.module)
	}
	return l, true
}

// locateAt symbolizes addr by looking up pc. The caller releases the module.
func (ps *Processes) locateAt(p *process, addr, pc uint64, code []Code) (l located, ok bool) {
	i := slices.IndexFunc(code, func(c Code) bool { return c.holds(pc) })
	if i < 0 {
		return l, false
	}
	f := ps.Find(p.pid, &code[i])
	if f == nil {
		return l, false
	}
	l.Frame = Frame{Addr: addr, Module: f.Path}
	l.offset = pc - code[i].Start + code[i].Offset
	l.module, l.at = f.module(ps, ps.searchRoots(p.root))
	l.at.pid = p.pid
	if !l.module.resolve(&l.Frame, pc, l.offset, l.at) {
		ps.cache.release(l.module)
		return l, false
	}
	return l, true
}

// frame symbolizes an address with the snapshot, and takes a new one if necessary. exact is set if
// the thread was interrupted at the address. Otherwise it is a return address, and belongs to the
// function that contains the byte before it.
func (ps *Processes) frame(p *process, addr uint64, exact bool, at uint64) located {
	pc := addr
	if !exact {
		pc--
	}
	f, isFinal := p.lookup(addr, pc, at)
	if !isFinal && ps.refresh(p) {
		f, _ = p.lookup(addr, pc, at)
	}
	if ps.isReplaced(p, pc, at) {
		// A newer snapshot helps if the file was replaced before the sample.
		if ps.refresh(p) {
			f, _ = p.lookup(addr, pc, at)
		}
		if ps.isReplaced(p, pc, at) {
			return located{Frame: Frame{Addr: addr, Reason: Replaced}}
		}
	}
	f.Late = f.Name == "" && p.snapshot.isEarlier(at)
	if f.Name != "" || exact {
		return p.located(f, pc)
	}
	// If a signal handler interrupted a function, it returns to the start of a trampoline, which no
	// call precedes.
	if t, _ := p.lookup(addr, addr, at); t.Offset == 0 && isTrampoline(t.Name) {
		return p.located(t, addr)
	}
	return p.located(f, pc)
}

// located adds the module and offset of f, if that is an ELF file.
func (p *process) located(f Frame, pc uint64) located {
	l := located{Frame: f}
	if f.Name == "" || p.snapshot == nil {
		return l
	}
	if m := p.snapshot.mapping(pc); m != nil && m.module != nil && m.module.key.kind == kindELF {
		l.module, l.offset, l.at = m.module, pc-m.start+m.offset, place{path: m.path, roots: p.snapshot.roots, pid: p.pid}
	}
	return l
}

// lookup symbolizes addr by looking up pc. isFinal is set if a newer snapshot, perf map or jitdump
// cannot change the result.
func (p *process) lookup(addr, pc, at uint64) (f Frame, isFinal bool) {
	f = Frame{Addr: addr, Reason: p.failure}
	if f.Reason == Named {
		f.Reason = Unmapped
	}
	if p.snapshot == nil {
		return f, false
	}
	if m := p.snapshot.mapping(pc); m != nil && p.snapshot.resolve(&f, m, pc) {
		return f, true
	}
	p.snapshot.resolveJIT(&f, pc, at)
	return f, f.Name != "" && at <= p.snapshot.takenAt
}

// resolve symbolizes f with the module of its mapping. isFinal is set if that is a file with
// symbols, because JIT compilers do not write to these.
func (s *snapshot) resolve(f *Frame, m *mapping, pc uint64) (isFinal bool) {
	f.Module = m.path
	if m.module != nil {
		return m.module.resolve(f, pc, pc-m.start+m.offset, place{path: m.path, roots: s.roots, pid: s.pid})
	}
	f.Offset, f.Reason = f.Addr-m.start, NoSymbols
	if m.isFile() {
		f.Offset += m.offset
	}
	if m.reason != Named {
		f.Reason = m.reason
	}
	return false
}

// resolveJIT symbolizes f with the first jitdump or perf map of the process that has a symbol.
func (s *snapshot) resolveJIT(f *Frame, pc, at uint64) {
	for _, j := range s.jits {
		jit := *f
		j.module.resolve(&jit, pc, pc, place{path: j.path, roots: s.roots, pid: s.pid, time: at})
		if jit.Name != "" {
			*f = jit
			f.Module = j.path
			return
		}
	}
}

// isTrampoline reports whether name is the function that signal handlers return to. The frame that
// follows it is the interrupted instruction.
func isTrampoline(name string) bool {
	switch strings.TrimSuffix(name, ".abi0") {
	case "__restore_rt", "__restore", "runtime.sigreturn__sigaction",
		"__kernel_rt_sigreturn", "__kernel_sigreturn", "__vdso_rt_sigreturn", "__vdso_sigreturn":
		return true
	}
	return false
}
