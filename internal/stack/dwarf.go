package stack

import (
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/limit"
)

// maxDecoded bounds the compilation units of a file that are kept decoded, in bytes.
const maxDecoded = 64 << 20

// debugInfo is a file's debugging information. Compilation units are found by their
// addresses, and only those are decoded that an address lies in.
type debugInfo struct {
	data    *dwarf.Data
	ranges  []unitRange // in the order of their addresses
	decoded map[dwarf.Offset]*unit
	names   map[dwarf.Offset]string // of functions that stand in others
	size    int64                   // of decoded, names with it
	raw     int64                   // of the file's sections
}

type unitRange struct {
	low, high uint64
	offset    dwarf.Offset // of the unit's entry
}

var errNoDWARF = errors.New("no debugging information")

// debugInfo reads what the file has; decompressed it may not be larger than limit.Debug.
func (m *image) debugInfo() (*debugInfo, error) {
	sections, size, err := m.debugSections()
	if err != nil {
		return nil, fmt.Errorf("read debugging information: %w", err)
	}
	units := sections["info"]
	if units == nil {
		return nil, errNoDWARF
	}
	data, err := dwarf.New(sections["abbrev"], nil, nil, units, sections["line"], nil, sections["ranges"], sections["str"])
	if err != nil {
		return nil, fmt.Errorf("read debugging information: %w", err)
	}
	for _, name := range laterSections() {
		if b := sections[name]; b != nil {
			if err := data.AddSection(".debug_"+name, b); err != nil {
				return nil, fmt.Errorf("read debugging information: %w", err)
			}
		}
	}
	d := &debugInfo{data: data, decoded: map[dwarf.Offset]*unit{}, names: map[dwarf.Offset]string{}, raw: size}
	for _, at := range unitEntries(units, m.ByteOrder) {
		d.addUnit(at)
	}
	slices.SortFunc(d.ranges, func(a, b unitRange) int { return compareBool(a.low > b.low, b.low > a.low) })
	return d, nil
}

// laterSections are those of DWARF 5 that debug/dwarf reads.
func laterSections() []string { return []string{"addr", "line_str", "str_offsets", "rnglists"} }

// debugSections reads the sections of debugging information that debug/dwarf uses, by their names
// without a prefix, and returns their size. elf.File.DWARF reads all, without a limit, and applies
// relocations, which only object files need.
func (m *image) debugSections() (sections map[string][]byte, size int64, err error) {
	used := append([]string{"abbrev", "info", "line", "ranges", "str"}, laterSections()...)
	sections = map[string][]byte{}
	for _, s := range m.Sections {
		name, isDebug := strings.CutPrefix(s.Name, ".debug_")
		if !isDebug {
			name, isDebug = strings.CutPrefix(s.Name, ".zdebug_")
		}
		if !isDebug || !slices.Contains(used, name) || sections[name] != nil || s.Type == elf.SHT_NOBITS {
			continue
		}
		if sections[name], err = limit.Decompressed(s, m.path, limit.Debug-size); err != nil {
			return nil, 0, err
		}
		size += int64(len(sections[name]))
	}
	return sections, size, nil
}

// unitEntries lists where the first entry of each unit is that has code. debug/dwarf finds
// the next unit only by reading all of this one.
func unitEntries(b []byte, order binary.ByteOrder) (entries []dwarf.Offset) {
	const wide, compile, skeleton = 0xffffffff, 1, 4
	for at := uint64(0); uint64(len(b))-at > 24; {
		size, head, word := uint64(order.Uint32(b[at:])), uint64(4), uint64(4)
		if size == wide {
			size, head, word = order.Uint64(b[at+4:]), 12, 8
		}
		if size < 2 || size > uint64(len(b))-at-head {
			break
		}
		entry, kind := at+head+2+word+1, uint8(compile)
		if version := order.Uint16(b[at+head:]); version >= 5 {
			kind = b[at+head+2]
			entry++
		}
		if kind == skeleton {
			entry += 8
		}
		if kind == compile || kind == skeleton {
			entries = append(entries, dwarf.Offset(entry))
		}
		at += head + size
	}
	return entries
}

func (d *debugInfo) addUnit(at dwarf.Offset) {
	r := d.data.Reader()
	r.Seek(at)
	e, err := r.Next()
	if err != nil || e == nil {
		return
	}
	ranges, _ := d.data.Ranges(e)
	for _, one := range ranges {
		if one[0] < one[1] {
			d.ranges = append(d.ranges, unitRange{one[0], one[1], at})
		}
	}
}

// unit returns the decoded unit that has an address, nil if there is none. grown is by how
// much d has grown.
func (d *debugInfo) unit(vaddr uint64) (u *unit, grown int64) {
	i, _ := slices.BinarySearchFunc(d.ranges, vaddr, func(r unitRange, vaddr uint64) int {
		return compareBool(r.low > vaddr, r.low <= vaddr)
	})
	if i == 0 || vaddr >= d.ranges[i-1].high {
		return nil, 0
	}
	at := d.ranges[i-1].offset
	if u := d.decoded[at]; u != nil {
		return u, 0
	}
	if d.size > maxDecoded {
		clear(d.decoded)
		clear(d.names)
		grown, d.size = -d.size, 0
	}
	u = d.decode(at)
	d.decoded[at] = u
	d.size += u.bytes()
	return u, grown + u.bytes()
}

func (d *debugInfo) bytes() int64 { return d.raw + int64(24*cap(d.ranges)) }
