package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// Kinds of types, from linux/btf.h.
const (
	kindInt       = 1
	kindPtr       = 2
	kindArray     = 3
	kindStruct    = 4
	kindUnion     = 5
	kindEnum      = 6
	kindFwd       = 7
	kindTypedef   = 8
	kindVolatile  = 9
	kindConst     = 10
	kindRestrict  = 11
	kindFunc      = 12
	kindFuncProto = 13
	kindVar       = 14
	kindDatasec   = 15
	kindFloat     = 16
	kindDeclTag   = 17
	kindTypeTag   = 18
	kindEnum64    = 19
)

const (
	magic     = 0xeb9f
	headerLen = 24 // of .BTF
	vlenMask  = 0xffff
)

var order = binary.LittleEndian

// entry is an element of a type, in words: a member, an enumerator, a parameter, or a variable of a
// section.
type entry []uint32

// btfType is a type as in the section. head has the offset of the name, the word with kind and
// number of entries, and the size or a type.
type btfType struct {
	head    [3]uint32
	words   []uint32 // after the head, for kinds without entries
	entries []entry
}

func (t *btfType) kind() uint32 { return t.head[1] >> 24 & 0x1f }

// refersInHead reports whether the third word of the head is a type, and not a size.
func (t *btfType) refersInHead() bool {
	switch t.kind() {
	case kindPtr, kindTypedef, kindVolatile, kindConst, kindRestrict, kindFunc, kindFuncProto, kindVar, kindDeclTag, kindTypeTag:
		return true
	}
	return false
}

// extraWords returns the number of words after the head.
func extraWords(kind uint32) int {
	switch kind {
	case kindInt, kindVar, kindDeclTag:
		return 1
	case kindArray:
		return 3
	}
	return 0
}

// entryWords returns the number of words of an entry.
func entryWords(kind uint32) int {
	switch kind {
	case kindStruct, kindUnion, kindDatasec, kindEnum64:
		return 3
	case kindEnum, kindFuncProto:
		return 2
	}
	return 0
}

// entryRefs returns the indexes of the name and of the type in entries, or -1.
func entryRefs(kind uint32) (name, typ int) {
	switch kind {
	case kindStruct, kindUnion, kindFuncProto:
		return 0, 1
	case kindEnum, kindEnum64:
		return 0, -1
	case kindDatasec:
		return -1, 0
	}
	return -1, -1
}

// parseTypes returns the types, of which number 0 is void, and the strings.
func parseTypes(b []byte) ([]*btfType, []byte, error) {
	if len(b) < headerLen || order.Uint16(b) != magic {
		return nil, nil, errors.New("read types: the section has no BTF header")
	}
	header := order.Uint32(b[4:])
	at := func(i int) uint32 { return header + order.Uint32(b[i:]) }
	from, to := at(8), at(8)+order.Uint32(b[12:])
	strFrom, strTo := at(16), at(16)+order.Uint32(b[20:])
	if to > uint32(len(b)) || strTo > uint32(len(b)) || from > to || strFrom > strTo {
		return nil, nil, errors.New("read types: the section is too short")
	}
	words, err := toWords(b[from:to])
	if err != nil {
		return nil, nil, err
	}
	types := []*btfType{nil}
	for len(words) > 0 {
		t := &btfType{}
		if words, err = t.read(words); err != nil {
			return nil, nil, err
		}
		types = append(types, t)
	}
	return types, b[strFrom:strTo], nil
}

func (t *btfType) read(words []uint32) (rest []uint32, err error) {
	if len(words) < 3 {
		return nil, errors.New("read types: the last type is incomplete")
	}
	copy(t.head[:], words)
	words = words[3:]
	n, each := extraWords(t.kind()), entryWords(t.kind())
	count := int(t.head[1] & vlenMask)
	if each == 0 {
		count = 0
	}
	if t.kind() == 0 || t.kind() > kindEnum64 || len(words) < n+count*each {
		return nil, fmt.Errorf("read types: kind %d with %d entries does not fit", t.kind(), count)
	}
	t.words, words = words[:n:n], words[n:]
	for range count {
		t.entries = append(t.entries, words[:each:each])
		words = words[each:]
	}
	return words, nil
}

func toWords(b []byte) ([]uint32, error) {
	if len(b)%4 != 0 {
		return nil, errors.New("read words: the size is not a multiple of 4")
	}
	words := make([]uint32, len(b)/4)
	for i := range words {
		words[i] = order.Uint32(b[4*i:])
	}
	return words, nil
}

func fromWords(words []uint32) []byte {
	b := make([]byte, 0, 4*len(words))
	for _, w := range words {
		b = order.AppendUint32(b, w)
	}
	return b
}

// text returns the string at an offset.
func text(strings []byte, off uint32) string {
	if off >= uint32(len(strings)) {
		return ""
	}
	s, _, _ := bytes.Cut(strings[off:], []byte{0})
	return string(s)
}

// table is a string table under construction.
type table struct {
	data []byte
	at   map[string]uint32
}

func newTable() *table { return &table{[]byte{0}, map[string]uint32{"": 0}} }

func (t *table) add(s string) uint32 {
	off, ok := t.at[s]
	if !ok {
		off = uint32(len(t.data))
		t.at[s] = off
		t.data = append(append(t.data, s...), 0)
	}
	return off
}

// section has the records of .BTF.ext for one section of programs.
type section struct {
	name    uint32
	records [][]uint32
}

// infos are the three parts of .BTF.ext.
type infos struct {
	size     uint32 // of a record, in bytes
	sections []section
}

// all returns the records of all sections.
func (in *infos) all() (records [][]uint32) {
	for _, s := range in.sections {
		records = append(records, s.records...)
	}
	return records
}

// The parts of .BTF.ext.
const (
	functions = iota
	lines
	relocations
	parts
)

const extHeaderLen = 32

func parseExt(b []byte) (all [parts]infos, err error) {
	if len(b) < extHeaderLen || order.Uint16(b) != magic {
		return all, errors.New("read extended information: the section has no BTF header")
	}
	header := order.Uint32(b[4:])
	for i := range all {
		off, size := header+order.Uint32(b[8+8*i:]), order.Uint32(b[12+8*i:])
		if off+size > uint32(len(b)) {
			return all, errors.New("read extended information: the section is too short")
		}
		words, err := toWords(b[off : off+size])
		if err != nil {
			return all, err
		}
		if all[i], err = parseInfos(words); err != nil {
			return all, err
		}
	}
	return all, nil
}

func parseInfos(words []uint32) (in infos, err error) {
	if len(words) == 0 {
		return in, nil
	}
	in.size = words[0]
	each := int(in.size / 4)
	for words = words[1:]; len(words) > 0; {
		if len(words) < 2 || each == 0 || len(words)-2 < int(words[1])*each {
			return in, errors.New("read extended information: the last section is incomplete")
		}
		s := section{name: words[0]}
		n := int(words[1])
		words = words[2:]
		for range n {
			s.records = append(s.records, words[:each:each])
			words = words[each:]
		}
		in.sections = append(in.sections, s)
	}
	return in, nil
}

func formatExt(all [parts]infos) []byte {
	header := []uint32{magic | 1<<16, extHeaderLen}
	var body []uint32
	for _, in := range all {
		from := len(body)
		if in.size > 0 {
			body = append(body, in.size)
		}
		for _, s := range in.sections {
			body = append(body, s.name, uint32(len(s.records)))
			for _, r := range s.records {
				body = append(body, r...)
			}
		}
		header = append(header, uint32(4*from), uint32(4*(len(body)-from)))
	}
	return fromWords(append(header, body...))
}

func formatTypes(types []*btfType, strings []byte) []byte {
	var body []uint32
	for _, t := range types[1:] {
		body = append(append(body, t.head[:]...), t.words...)
		for _, e := range t.entries {
			body = append(body, e...)
		}
	}
	size := uint32(4 * len(body))
	header := []uint32{magic | 1<<16, headerLen, 0, size, size, uint32(len(strings))}
	return append(fromWords(append(header, body...)), strings...)
}
