package stack

// frame names one address, with newer mappings if the known ones cannot.
func (ps *Processes) frame(p *process, addr uint64, exact bool) Frame {
	f, mapped := ps.lookup(p, addr, exact)
	if f.Name == "" && !mapped && ps.refresh(p) {
		f, _ = ps.lookup(p, addr, exact)
	}
	return f
}

// lookup names one address. The address is exact if it was interrupted there,
// and a return address otherwise; but a signal handler returns to the very
// start of a trampoline that was never called. mapped is false if newer
// mappings, or a newer perf map, might help.
func (ps *Processes) lookup(p *process, addr uint64, exact bool) (f Frame, mapped bool) {
	f, mapped = ps.lookupAt(p, addr, addr)
	if exact || f.Offset == 0 && isTrampoline(f.Name) {
		return f, mapped
	}
	return ps.lookupAt(p, addr, addr-1)
}

// lookupAt names addr after what holds pc.
func (ps *Processes) lookupAt(p *process, addr, pc uint64) (f Frame, mapped bool) {
	f = Frame{Addr: addr, Reason: p.gone}
	if f.Reason == Named {
		f.Reason = Unmapped
	}
	if p.taken == nil {
		return f, false
	}
	m := p.taken.mapping(pc)
	if m != nil {
		ps.resolve(&f, m, p.taken, pc)
		if f.Name != "" || m.isELF(&f) {
			return f, true
		}
	}
	if perf := p.taken.perf; perf != nil {
		ps.resolveJIT(&f, p.taken, pc)
	}
	return f, f.Name != ""
}

// resolve names f after the module of its mapping.
func (ps *Processes) resolve(f *Frame, m *mapping, s *snapshot, pc uint64) {
	f.Module, f.Reason = m.path, m.reason
	if m.module != nil {
		m.module.resolve(f, pc, pc-m.start+m.offset, place{m.file(), ps.roots(s)})
		return
	}
	f.Offset = f.Addr - m.start
	if m.isFile() {
		f.Offset += m.offset
	}
	if f.Reason == Named {
		f.Reason = NoSymbols
	}
}

// resolveJIT names f after the perf map, if that has it.
func (ps *Processes) resolveJIT(f *Frame, s *snapshot, pc uint64) {
	path := perfMapPath(s.innerPID)
	jit := *f
	s.perf.resolve(&jit, pc, pc, place{path, ps.roots(s)})
	if jit.Name != "" {
		*f = jit
		f.Module, f.BuildID = "/"+path, ""
	}
}

// isTrampoline tells what a signal handler returns to. The frame behind it is
// the interrupted instruction.
func isTrampoline(name string) bool {
	switch name {
	case "__restore_rt", "__restore", "__kernel_rt_sigreturn", "__vdso_rt_sigreturn",
		"__kernel_sigreturn", "__vdso_sigreturn", "runtime.sigreturn__sigaction":
		return true
	}
	return false
}
