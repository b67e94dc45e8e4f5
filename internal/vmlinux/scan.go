package vmlinux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// kind is of a type, as the kernel numbers them (include/uapi/linux/btf.h).
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
	kinds
)

// headerSize is the size of struct btf_type: name_off, info, size or type.
const headerSize = 12

// fixed and each are what follows a type's header: in all, and for each of its members.
var (
	fixed = [kinds]int{kindInt: 4, kindArray: 12, kindVar: 4, kindDeclTag: 4}
	each  = [kinds]int{kindStruct: 12, kindUnion: 12, kindEnum: 8, kindFuncProto: 8, kindDatasec: 12, kindEnum64: 12}
	// named are the kinds that are looked for.
	named = [kinds]bool{
		kindInt: true, kindStruct: true, kindUnion: true, kindEnum: true, kindTypedef: true, kindFunc: true,
		kindFloat: true, kindEnum64: true,
	}
)

var errFormat = errors.New("unknown format")

// blob is BTF as it lies in its file.
type blob struct {
	types, strings []byte
	// places are where every stride-th type lies, from ID 1 on; known after scan.
	places []uint32
}

// stride is how many types are gone through to find one.
const stride = 32

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

// sizeAt is the size of the type that begins at off.
func (b *blob) sizeAt(off int) (int, error) {
	if off+headerSize > len(b.types) {
		return 0, errFormat
	}
	k, n := unpack(order.Uint32(b.types[off+4:]))
	if k == 0 || k >= kinds {
		return 0, fmt.Errorf("%w: kind %d", errFormat, k)
	}
	size := headerSize + fixed[k] + n*each[k]
	if off+size > len(b.types) {
		return 0, errFormat
	}
	return size, nil
}

// hit is a type that was looked for.
type hit struct {
	symbol
	id uint32
}

// scan goes through all types once.
func (b *blob) scan(names map[string]bool) ([]hit, error) {
	var hits []hit
	likely := newSieve(names)
	id := uint32(1)
	for off := 0; off < len(b.types); id++ {
		size, err := b.sizeAt(off)
		if err != nil {
			return nil, err
		}
		if id%stride == 1 {
			b.places = append(b.places, uint32(off))
		}
		name, k := order.Uint32(b.types[off:]), kind(b.types[off+7]&0x1f)
		if named[k] && likely.has(b.strings, name) {
			if text := b.name(name); names[string(text)] {
				hits = append(hits, hit{symbol{k, string(text)}, id})
			}
		}
		off += size
	}
	return hits, nil
}

// name is the text at an offset, which is checked as strings end with a 0.
func (b *blob) name(off uint32) []byte {
	if int(off) >= len(b.strings) {
		return nil
	}
	text := b.strings[off:]
	return text[:bytes.IndexByte(text, 0)]
}

// at returns the place of a type; scan has been there.
func (b *blob) at(id uint32) (int, error) {
	i := int(id-1) / stride
	if id == 0 || i >= len(b.places) {
		return 0, fmt.Errorf("%w: type %d", errFormat, id)
	}
	off := int(b.places[i])
	for range int(id-1) % stride {
		size, err := b.sizeAt(off)
		if err != nil {
			return 0, err
		}
		off += size
	}
	return off, nil
}

// hasString tells whether one of the names is among the strings, whatever it names.
func (b *blob) hasString(names map[string]bool) bool {
	likely := newSieve(names)
	for off := 0; off < len(b.strings); {
		text := b.strings[off : off+bytes.IndexByte(b.strings[off:], 0)]
		if likely.has(b.strings, uint32(off)) && names[string(text)] {
			return true
		}
		off += len(text) + 1
	}
	return false
}

// sieve tells names by their first eight bytes, with some that are not among them: most
// of a kernel's names need no further look.
type sieve [4096]bool

func newSieve(names map[string]bool) *sieve {
	s := &sieve{}
	for name := range names {
		text := append([]byte(name), make([]byte, 8)...)
		s[place(order.Uint64(text))] = true
	}
	return s
}

func (s *sieve) has(strings []byte, off uint32) bool {
	if int(off)+8 > len(strings) {
		return true
	}
	return s[place(order.Uint64(strings[off:]))]
}

// place looks at no byte behind the first 0.
func place(x uint64) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	if zeros := (x - ones) &^ x & highs; zeros != 0 {
		x &= 1<<(bits.TrailingZeros64(zeros)-7) - 1
	}
	return int(x * 0x9e3779b97f4a7c15 >> 52)
}
