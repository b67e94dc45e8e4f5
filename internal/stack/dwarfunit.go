package stack

import (
	"debug/dwarf"
	"slices"
)

// unit is a decoded compilation unit: its line table and its inlined functions.
type unit struct {
	rows    []lineRow // sorted by address
	files   []string
	inlines []inline
}

// lineRow is the source line of the addresses up to the next row. If line is 0, they have none.
type lineRow struct {
	addr       uint64
	file, line uint32
}

// inline is an address range of a function that is inlined in another one.
type inline struct {
	low, high uint64
	name      string
	// file and line are the position of the call.
	file, line uint32
	depth      int // 1 if the enclosing function is not inlined itself
}

// bytes returns the memory of the unit; the size of names is estimated.
func (u *unit) bytes() int64 {
	const row, part, name = 16, 72, 64
	return int64(row*cap(u.rows)+part*cap(u.inlines)) + int64(name*len(u.files))
}

// decode decodes as much of a unit as it can. debug/dwarf can panic on malformed files.
func (d *debugInfo) decode(at dwarf.Offset) (u *unit) {
	u = &unit{}
	defer func() { _ = recover() }()
	r := d.data.Reader()
	r.Seek(at)
	e, err := r.Next()
	if err != nil || e == nil {
		return u
	}
	if lines, err := d.data.LineReader(e); err == nil && lines != nil {
		u.readLines(lines)
	}
	if e.Children {
		d.readInlines(u, r)
	}
	return u
}

// readLines reads the rows of all sequences. Addresses between sequences have no line.
func (u *unit) readLines(lines *dwarf.LineReader) {
	for _, f := range lines.Files() {
		name := ""
		if f != nil {
			name = f.Name
		}
		u.files = append(u.files, name)
	}
	index := map[*dwarf.LineFile]uint32{}
	for i, f := range lines.Files() {
		index[f] = uint32(i)
	}
	var e dwarf.LineEntry
	for lines.Next(&e) == nil {
		row := lineRow{addr: e.Address, file: index[e.File], line: uint32(e.Line)}
		if e.EndSequence {
			row.line = 0
		}
		u.rows = append(u.rows, row)
	}
	// If a sequence begins where another one ends, its first row follows the end, so that it is
	// used.
	slices.SortStableFunc(u.rows, func(a, b lineRow) int {
		if a.addr != b.addr {
			return compareBool(a.addr > b.addr, b.addr > a.addr)
		}
		return compareBool(a.line != 0, b.line != 0)
	})
	u.rows = slices.Clip(u.rows)
}

// maxDepth bounds the nesting of inlined functions.
const maxDepth = 64

// readInlines reads the unit's entries to find inlined functions.
func (d *debugInfo) readInlines(u *unit, r *dwarf.Reader) {
	var depths []int // depths of the entries whose children are being read
	depth := 0
	for {
		e, err := r.Next()
		switch {
		case err != nil || e == nil || e.Tag == dwarf.TagCompileUnit || e.Tag == dwarf.TagPartialUnit:
			return
		case e.Tag == 0:
			if len(depths) == 0 {
				return
			}
			depth, depths = depths[len(depths)-1], depths[:len(depths)-1]
			continue
		}
		inner := depth
		switch e.Tag {
		case dwarf.TagInlinedSubroutine:
			inner++
			d.addInline(u, e, inner)
		case dwarf.TagSubprogram, dwarf.TagLexDwarfBlock, dwarf.TagNamespace, dwarf.TagModule:
		default:
			r.SkipChildren()
			continue
		}
		if !e.Children {
			continue
		}
		if inner > maxDepth || len(depths) > 4*maxDepth {
			r.SkipChildren()
			continue
		}
		depths, depth = append(depths, depth), inner
	}
}

func (d *debugInfo) addInline(u *unit, e *dwarf.Entry, depth int) {
	ranges, err := d.data.Ranges(e)
	if err != nil || len(ranges) == 0 {
		return
	}
	i := inline{name: d.name(e), depth: depth}
	i.file, i.line = number(e, dwarf.AttrCallFile), number(e, dwarf.AttrCallLine)
	if i.name == "" {
		return
	}
	for _, r := range ranges {
		i.low, i.high = r[0], r[1]
		u.inlines = append(u.inlines, i)
	}
}

func number(e *dwarf.Entry, attr dwarf.Attr) uint32 {
	n, _ := e.Val(attr).(int64)
	return uint32(n)
}

// name returns the name of an inlined function, from the entry that declares it.
func (d *debugInfo) name(e *dwarf.Entry) string {
	origin, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
	if !ok {
		return ""
	}
	name, ok := d.names[origin]
	if !ok {
		name = d.nameAt(origin)
		d.names[origin] = name
	}
	return name
}

// nameAt returns the name of an entry, or of the entries that it refers to. It prefers the linkage
// name.
func (d *debugInfo) nameAt(at dwarf.Offset) string {
	const maxReferences = 8 // they can be circular
	plain := ""
	for range maxReferences {
		r := d.data.Reader()
		r.Seek(at)
		e, err := r.Next()
		if err != nil || e == nil {
			break
		}
		if linked, ok := e.Val(dwarf.AttrLinkageName).(string); ok {
			return demangle(linked)
		}
		if name, ok := e.Val(dwarf.AttrName).(string); ok && plain == "" {
			plain = name
		}
		next, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			next, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset)
		}
		if !ok {
			break
		}
		at = next
	}
	return plain
}

// line returns the source position of an address, or "" and 0.
func (u *unit) line(vaddr uint64) (file string, line int) {
	i, _ := slices.BinarySearchFunc(u.rows, vaddr, func(r lineRow, vaddr uint64) int {
		return compareBool(r.addr > vaddr, r.addr <= vaddr)
	})
	if i == 0 || u.rows[i-1].line == 0 {
		return "", 0
	}
	return u.file(u.rows[i-1].file), int(u.rows[i-1].line)
}

func (u *unit) file(i uint32) string {
	if uint64(i) >= uint64(len(u.files)) {
		return ""
	}
	return u.files[i]
}

// inlinesAt lists the inlined functions that contain an address, innermost first.
func (u *unit) inlinesAt(vaddr uint64) (found []*inline) {
	for i := range u.inlines {
		if in := &u.inlines[i]; vaddr >= in.low && vaddr < in.high {
			found = append(found, in)
		}
	}
	slices.SortStableFunc(found, func(a, b *inline) int { return b.depth - a.depth })
	return found
}
