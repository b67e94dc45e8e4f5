package stack

import "fmt"

// Detail is what frames tell beside the function, by the debugging information of its file
// or of that file's debug file. Reading it takes its size in memory, 512 MiB at the most.
type Detail struct {
	// Lines is the position in the source.
	Lines bool
	// Inlines is a frame for each function that stands in another one.
	Inlines bool
}

// Want says what frames are to tell. It is called before there are any.
func (ps *Processes) Want(d Detail) { ps.detail = d }

// appendDetail appends a frame, and what is known of it from the debugging information.
func (ps *Processes) appendDetail(dst []Frame, l *located) []Frame {
	if ps.detail == (Detail{}) || l.Name == "" || l.module == nil || l.module.key.kind != kindELF {
		return append(dst, l.Frame)
	}
	return l.module.appendDetail(dst, l.Frame, l.offset, l.at, ps.detail)
}

func (m *module) appendDetail(dst []Frame, f Frame, offset uint64, at place, want Detail) []Frame {
	s := m.symbols(at)
	vaddr, ok := s.vaddr(offset)
	if !ok {
		return append(dst, f)
	}
	defer m.cache.reportExceeded(s, at.pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	grown := s.readDebugInfo(m, at)
	if s.debug == nil {
		return append(dst, f)
	}
	u, more := s.debug.unit(vaddr)
	m.cache.grow(m, s, grown+more)
	if u == nil {
		return append(dst, f)
	}
	return u.appendFrames(dst, f, vaddr, want)
}

// appendFrames appends the functions that stand in f's, and f. Each has the line where it
// calls the one before it; the innermost one that of the address.
func (u *unit) appendFrames(dst []Frame, f Frame, vaddr uint64, want Detail) []Frame {
	file, line := u.line(vaddr)
	locate := func(f *Frame) {
		if want.Lines {
			f.File, f.Line = file, line
		}
	}
	for _, in := range u.within(vaddr) {
		if want.Inlines {
			part := f
			part.Name, part.Offset, part.Inlined = in.name, vaddr-in.low, true
			locate(&part)
			dst = append(dst, part)
		}
		file, line = u.file(in.file), int(in.line)
	}
	locate(&f)
	return append(dst, f)
}

// readDebugInfo reads the debugging information of the module, or else of its debug file,
// once. It returns how much memory that takes.
func (s *symbols) readDebugInfo(m *module, at place) (grown int64) {
	if s.debugged {
		return 0
	}
	s.debugged = true
	if f, err := m.cache.open(m, at); err == nil {
		var err error
		s.debug, err = readDebugInfo(func() (*image, error) { return openImage(f, m.key.file.size, at.path) })
		s.note(err)
		f.Close()
	}
	if s.debug == nil {
		s.eachDebugFile(at, func(i *image) bool {
			var err error
			s.debug, err = readDebugInfo(func() (*image, error) { return i, nil })
			s.note(err)
			return s.debug != nil
		})
	}
	if s.debug == nil {
		return 0
	}
	return s.debug.bytes()
}

// readDebugInfo outlives files that are made to do harm, on which debug/dwarf may panic.
func readDebugInfo(open func() (*image, error)) (d *debugInfo, err error) {
	defer func() {
		if p := recover(); p != nil {
			d, err = nil, fmt.Errorf("parse debugging information: %v", p)
		}
	}()
	m, err := open()
	if err != nil {
		return nil, err
	}
	return m.debugInfo()
}
