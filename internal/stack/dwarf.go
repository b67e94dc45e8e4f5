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

// maxDecoded bounds the memory for decoded compilation units of a file, in bytes.
const maxDecoded = 64 << 20

// debugInfo is the debugging information of a file. Compilation units are indexed by address and
// decoded when an address in them is looked up.
type debugInfo struct {
	data    *dwarf.Data
	ranges  []unitRange // sorted by address
	decoded map[dwarf.Offset]*unit
	names   map[dwarf.Offset]string // of inlined functions
	size    int64                   // of decoded and names, in bytes
	raw     int64                   // of the file's sections, in bytes
}

type unitRange struct {
	low, high uint64
	offset    dwarf.Offset // of the unit's entry
}

var errNoDWARF = errors.New("no debugging information")

// debugInfo reads the debugging information. Its decompressed size is limited to limit.Debug.
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

// laterSections lists the sections introduced with DWARF 5 that debug/dwarf reads.
func laterSections() []string { return []string{"addr", "line_str", "str_offsets", "rnglists"} }

// debugSections reads the sections of debugging information that debug/dwarf uses, by name without
// the prefix, and returns their total size. elf.File.DWARF cannot be used: it reads all sections
// without a limit, and applies relocations, which only object files need.
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

// unitEntries lists the offsets of the first entry of each unit that describes code. debug/dwarf
// would have to read all entries of a unit to find the next one.
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
	for _, r := range ranges {
		if r[0] < r[1] {
			d.ranges = append(d.ranges, unitRange{r[0], r[1], at})
		}
	}
}

// unit returns the decoded unit that contains an address, or nil. grown is the change of the memory
// of d in bytes.
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
