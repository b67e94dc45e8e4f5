package stack

import "fmt"

// Detail selects what frames contain besides the function. It is read from the debugging
// information of the file, or of its debug file, which takes its size in memory, at most 512 MiB.
type Detail struct {
	// Lines adds the source position.
	Lines bool
	// Inlines adds a frame for each inlined function.
	Inlines bool
}

// SetDetail sets what frames contain. Call it before Append.
func (ps *Processes) SetDetail(d Detail) { ps.detail = d }

// appendDetail appends a frame with its detail.
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

// appendFrames appends the functions that are inlined in f at vaddr, innermost first, and then f.
// The innermost frame has the position of vaddr, the others that of the call of the previous one.
func (u *unit) appendFrames(dst []Frame, f Frame, vaddr uint64, want Detail) []Frame {
	file, line := u.line(vaddr)
	locate := func(f *Frame) {
		if want.Lines {
			f.File, f.Line = file, line
		}
	}
	for _, in := range u.inlinesAt(vaddr) {
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

// readDebugInfo reads the debugging information of the module, or of its debug file, once. It
// returns the increase of memory.
func (s *symbols) readDebugInfo(m *module, at place) (grown int64) {
	if s.debugInfoRead {
		return 0
	}
	s.debugInfoRead = true
	if f, err := m.cache.open(m, at); err == nil {
		var err error
		s.debug, err = readDebugInfo(func() (*image, error) { return openImage(f, m.key.file.size, at.path) })
		s.noteLimit(err)
		f.Close()
	}
	if s.debug == nil {
		s.eachDebugFile(at, func(i *image) bool {
			var err error
			s.debug, err = readDebugInfo(func() (*image, error) { return i, nil })
			s.noteLimit(err)
			return s.debug != nil
		})
	}
	if s.debug == nil {
		return 0
	}
	return s.debug.bytes()
}

// readDebugInfo recovers from panics of debug/dwarf, which malformed files can cause.
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
