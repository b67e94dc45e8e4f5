package stack

import "strings"

// frame names one address, with newer mappings if the known ones cannot. The
// address is exact if the thread was interrupted there; else it is a return
// address, and lies in the function that holds the byte before it. pc is where it
// was looked up.
func (ps *Processes) frame(p *process, addr uint64, exact bool, at uint64) (f Frame, pc uint64) {
	pc = addr
	if !exact {
		pc--
	}
	f, sure := p.lookup(addr, pc, at)
	if !sure && ps.refresh(p) {
		f, _ = p.lookup(addr, pc, at)
	}
	if f.Name != "" || exact {
		return f, pc
	}
	// A signal handler returns to the very start of code that called nothing.
	if t, _ := p.lookup(addr, addr, at); t.Offset == 0 && isTrampoline(t.Name) {
		return t, addr
	}
	return f, pc
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
		return m.module.resolve(f, pc, pc-m.start+m.offset, place{path: m.file(), roots: s.roots})
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
		j.module.resolve(&jit, pc, pc, place{j.path, s.roots, at})
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
