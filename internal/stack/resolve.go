package stack

import (
	"slices"
	"strings"
)

// located is a frame and where its address was looked up.
type located struct {
	Frame
	module *module // nil if it is of none
	offset uint64  // in the file
	at     place
}

// locate names an address after the mapping that it lay in. It is false where that is not
// known, or of no program.
func (ps *Processes) locate(p *process, addr uint64, exact bool, code []Code) (l located, ok bool) {
	pc := addr
	if !exact {
		pc--
	}
	if l, ok = ps.locateAt(p, addr, pc, code); !ok || l.Name != "" || exact {
		return l, ok
	}
	// A signal handler returns to the very start of code that called nothing.
	if t, ok := ps.locateAt(p, addr, addr, code); ok {
		if t.Offset == 0 && isTrampoline(t.Name) {
			ps.cache.release(l.module)
			return t, true
		}
		ps.cache.release(t.module)
	}
	return l, true
}

// locateAt names addr after what holds pc. The module is to be released.
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
	l.module, l.at = f.module(ps, ps.roots(p.root))
	l.at.pid = p.pid
	if !l.module.resolve(&l.Frame, pc, l.offset, l.at) {
		ps.cache.release(l.module)
		return l, false
	}
	return l, true
}

// frame names one address, with newer mappings if the known ones cannot. The
// address is exact if the thread was interrupted there; else it is a return
// address, and lies in the function that holds the byte before it.
func (ps *Processes) frame(p *process, addr uint64, exact bool, at uint64) located {
	pc := addr
	if !exact {
		pc--
	}
	f, sure := p.lookup(addr, pc, at)
	if !sure && ps.refresh(p) {
		f, _ = p.lookup(addr, pc, at)
	}
	if f.Name != "" || exact {
		return p.located(f, pc)
	}
	// A signal handler returns to the very start of code that called nothing.
	if t, _ := p.lookup(addr, addr, at); t.Offset == 0 && isTrampoline(t.Name) {
		return p.located(t, addr)
	}
	return p.located(f, pc)
}

// located adds the file that f was named after, if it is a program.
func (p *process) located(f Frame, pc uint64) located {
	l := located{Frame: f}
	if f.Name == "" || p.taken == nil {
		return l
	}
	if m := p.taken.mapping(pc); m != nil && m.module != nil && m.module.key.kind == kindELF {
		l.module, l.offset, l.at = m.module, pc-m.start+m.offset, place{path: m.file(), roots: p.taken.roots, pid: p.pid}
	}
	return l
}

// lookup names addr after what holds pc. It is sure if newer mappings, or a
// newer perf map or jitdump, cannot change the answer.
func (p *process) lookup(addr, pc, at uint64) (f Frame, sure bool) {
	f = Frame{Addr: addr, Reason: p.gone}
	if f.Reason == Named {
		f.Reason = Unmapped
	}
	if p.taken == nil {
		return f, false
	}
	if m := p.taken.mapping(pc); m != nil && p.taken.resolve(&f, m, pc) {
		return f, true
	}
	p.taken.resolveJIT(&f, pc, at)
	return f, f.Name != "" && at <= p.taken.seen
}

// resolve names f after the module of its mapping. It is sure if that is a
// file with symbols: no JIT compiler writes into those.
func (s *snapshot) resolve(f *Frame, m *mapping, pc uint64) (sure bool) {
	f.Module = m.path
	if m.module != nil {
		return m.module.resolve(f, pc, pc-m.start+m.offset, place{path: m.file(), roots: s.roots, pid: s.pid})
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

// resolveJIT names f after the first of the process's own files that has it.
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

// isTrampoline tells what signal handlers return to. The frame behind it is
// the interrupted instruction.
func isTrampoline(name string) bool {
	switch strings.TrimSuffix(name, ".abi0") {
	case "__restore_rt", "__restore", "runtime.sigreturn__sigaction",
		"__kernel_rt_sigreturn", "__kernel_sigreturn", "__vdso_rt_sigreturn", "__vdso_sigreturn":
		return true
	}
	return false
}
