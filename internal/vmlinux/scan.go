package vmlinux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// kind is the kind of a type, as in include/uapi/linux/btf.h.
type kind uint8

const (
	kindInt kind = 1 + iota
	kindPtr
	kindArray
	kindStruct
	kindUnion
	kindEnum
	kindFwd
	kindTypedef
	kindVolatile
	kindConst
	kindRestrict
	kindFunc
	kindFuncProto
	kindVar
	kindDatasec
	kindFloat
	kindDeclTag
	kindTypeTag
	kindEnum64
)

// headerSize is the size of struct btf_type: name_off, info, size or type.
const headerSize = 12

// layout describes the types of a kind: their size is fixed, plus each for each member. Types of a searched
// kind can be searched for.
type layout struct {
	fixed, each uint8
	searched    bool
}

// layouts has an entry for each number that a kind can be; fixed is 0 if no kind has it.
var layouts = [32]layout{
	kindInt: {headerSize + 4, 0, true}, kindPtr: {headerSize, 0, false}, kindArray: {headerSize + 12, 0, false},
	kindStruct: {headerSize, 12, true}, kindUnion: {headerSize, 12, true}, kindEnum: {headerSize, 8, true},
	kindFwd: {headerSize, 0, false}, kindTypedef: {headerSize, 0, true}, kindVolatile: {headerSize, 0, false},
	kindConst: {headerSize, 0, false}, kindRestrict: {headerSize, 0, false}, kindFunc: {headerSize, 0, true},
	kindFuncProto: {headerSize, 8, false}, kindVar: {headerSize + 4, 0, false}, kindDatasec: {headerSize, 12, false},
	kindFloat: {headerSize, 0, true}, kindDeclTag: {headerSize + 4, 0, false}, kindTypeTag: {headerSize, 0, false},
	kindEnum64: {headerSize, 12, true},
}

var (
	errFormat  = errors.New("unknown format")
	errNoValue = errors.New("no enum has this value")
)

// blob is a BTF file in memory.
type blob struct {
	types, strings []byte
	// base is the scanned BTF of the kernel, if this is the BTF of a module: the type IDs and string
	// offsets of a module continue those of the kernel.
	base *blob
	// The rest is set by index: the offsets of every stride-th type, starting with the first ID; the
	// hashes of the names of all types; and the ID after the last one.
	offsets []uint32
	hashes  []uint16
	next    uint32
}

// first returns the ID of the first type.
func (b *blob) first() uint32 {
	if b.base != nil {
		return b.base.next
	}
	return 1
}

// stride is the number of types between two entries of offsets.
const stride = 4

var order = binary.NativeEndian

func parse(raw []byte) (*blob, error) {
	const magic, fields = 0xeb9f, 24
	if len(raw) < fields || order.Uint16(raw) != magic {
		return nil, errFormat
	}
	header := int(order.Uint32(raw[4:]))
	section := func(at int) []byte {
		start, size := header+int(order.Uint32(raw[at:])), int(order.Uint32(raw[at+4:]))
		if start > len(raw) || size > len(raw)-start {
			return nil
		}
		return raw[start : start+size]
	}
	b := &blob{types: section(8), strings: section(16)}
	if b.types == nil || len(b.strings) == 0 || b.strings[len(b.strings)-1] != 0 {
		return nil, errFormat
	}
	return b, nil
}

func unpack(info uint32) (k kind, members int) { return kind(info >> 24 & 0x1f), int(info & 0xffff) }

// sizeOf returns the size of a type, and 0 if no kind has its number.
func sizeOf(info uint32) int {
	l := &layouts[info>>24&0x1f]
	return int(l.fixed) + int(info&0xffff)*int(l.each)
}

// sizeAt returns the size of the type at off.
func (b *blob) sizeAt(off int) (int, error) {
	if off+headerSize > len(b.types) {
		return 0, errFormat
	}
	info := order.Uint32(b.types[off+4:])
	size := sizeOf(info)
	switch {
	case size == 0:
		k, _ := unpack(info)
		return 0, fmt.Errorf("%w: kind %d", errFormat, k)
	case off+size > len(b.types):
		return 0, errFormat
	}
	return size, nil
}

// hit is a type with one of the names that are searched for.
type hit struct {
	symbol
	id uint32
}

// index reads all types once.
func (b *blob) index() error {
	const meanSize = 16 // of a type, at least
	hashes := make([]uint16, 0, len(b.types)/meanSize)
	offsets := make([]uint32, 0, cap(hashes)/stride)
	types := b.types
	for off := 0; off < len(types); {
		// Not sizeAt: the compiler would not inline it, and there are 100,000 types and more.
		size := 0
		if len(types)-off >= headerSize {
			size = sizeOf(order.Uint32(types[off+4:]))
		}
		if size == 0 || size > len(types)-off {
			_, err := b.sizeAt(off)
			return err
		}
		if len(hashes)%stride == 0 {
			offsets = append(offsets, uint32(off))
		}
		hash := uint16(noName)
		if layouts[types[off+7]&0x1f].searched {
			hash = hashAt(b.textAt(order.Uint32(types[off:])))
		}
		hashes = append(hashes, hash)
		off += size
	}
	b.hashes, b.offsets = hashes, offsets
	b.next = b.first() + uint32(len(b.hashes))
	return nil
}

// search returns the types with one of the names. index must have run before.
func (b *blob) search(names map[string]bool) ([]hit, error) {
	var hits []hit
	filter := newSieve(names)
	for i, hash := range b.hashes {
		if !filter[hash] {
			continue
		}
		id := b.first() + uint32(i)
		record, err := b.record(id)
		if err != nil {
			return nil, err
		}
		if text := b.name(order.Uint32(record)); names[string(text)] {
			hits = append(hits, hit{symbol{kind(record[7] & 0x1f), string(text)}, id})
		}
	}
	return hits, nil
}

// textAt returns the string table of an offset, and the offset in that table.
func (b *blob) textAt(off uint32) (strings []byte, at uint32) {
	if b.base == nil {
		return b.strings, off
	}
	if n := uint32(len(b.base.strings)); off >= n {
		return b.strings, off - n
	}
	return b.base.strings, off
}

// name returns the string at an offset. The string table ends with a NUL byte, which is verified.
func (b *blob) name(off uint32) []byte {
	text, at := b.textAt(off)
	if int(at) >= len(text) {
		return nil
	}
	text = text[at:]
	return text[:bytes.IndexByte(text, 0)]
}

// record returns the bytes of a type. index must have run before.
func (b *blob) record(id uint32) ([]byte, error) {
	if b.base != nil && id < b.first() {
		return b.base.record(id)
	}
	i := int(id-b.first()) / stride
	if id < b.first() || i >= len(b.offsets) {
		return nil, fmt.Errorf("%w: type %d", errFormat, id)
	}
	off := int(b.offsets[i])
	for range int(id-b.first()) % stride {
		size, err := b.sizeAt(off)
		if err != nil {
			return nil, err
		}
		off += size
	}
	size, err := b.sizeAt(off)
	if err != nil {
		return nil, err
	}
	return b.types[off : off+size], nil
}

// hasString reports whether one of the names is in the string table.
func (b *blob) hasString(names map[string]bool) bool {
	filter := newSieve(names)
	for off := 0; off < len(b.strings); {
		text := b.strings[off : off+bytes.IndexByte(b.strings[off:], 0)]
		if filter[hashAt(b.strings, uint32(off))] && names[string(text)] {
			return true
		}
		off += len(text) + 1
	}
	return false
}

// Hashes that are not those of a name: the type has no name, or its name is at the end of the strings.
const (
	noName = iota
	anyName
	firstHash
)

// sieve is a set of hashes of the first eight bytes of names. It has false positives, but excludes
// nearly all names of a kernel without a further comparison.
type sieve [1 << 16]bool

func newSieve(names map[string]bool) *sieve {
	s := new(sieve) // not a literal, which would be 64 KB of the binary
	s[anyName] = true
	for name := range names {
		text := append([]byte(name), make([]byte, 8)...)
		s[hashAt(text, 0)] = true
	}
	return s
}

// hashAt returns the hash of the name at an offset: of its first eight bytes, without those after the first NUL
// byte.
func hashAt(strings []byte, off uint32) uint16 {
	if int(off)+8 > len(strings) {
		return anyName
	}
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	x := order.Uint64(strings[off:])
	if zeros := (x - ones) &^ x & highs; zeros != 0 {
		x &= 1<<(bits.TrailingZeros64(zeros)-7) - 1
	}
	return max(firstHash, uint16(x*0x9e3779b97f4a7c15>>48))
}
