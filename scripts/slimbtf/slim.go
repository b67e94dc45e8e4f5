package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kinds of CO-RE relocations, from linux/bpf.h.
const (
	relocateFields  = 5 // the last one that names a member
	typeExists      = 8
	enumValueExists = 10
	enumValue       = 11
	typeMatches     = 12
)

// How much of a type is kept: the number of pointers that are followed to types that are kept whole.
const (
	unused = -2
	// bare: only the entries that relocations name. Pointers become pointers to void.
	bare = -1
	// whole: all entries. The targets of pointers are bare.
	whole = 0
	// whole1: the targets of pointers are whole, as for the types of keys and values in the
	// definition of a map.
	whole1 = 1
)

// slimmer selects the types and entries to keep.
type slimmer struct {
	types   []*btfType
	strings []byte
	ext     [parts]infos

	extent []int                   // of each type
	used   map[uint32]map[int]bool // entries named by relocations, by type
}

// slim returns the two sections without what no loader needs.
func slim(types, ext []byte) (slimTypes, slimExt []byte, err error) {
	s := &slimmer{used: map[uint32]map[int]bool{}}
	if s.types, s.strings, err = parseTypes(types); err != nil {
		return nil, nil, err
	}
	if s.ext, err = parseExt(ext); err != nil {
		return nil, nil, err
	}
	s.extent = slices.Repeat([]int{unused}, len(s.types))
	// The entries first: they decide what a bare type refers to.
	for _, r := range s.ext[relocations].all() {
		if err := s.markEntries(r); err != nil {
			return nil, nil, err
		}
	}
	s.markRoots()
	return s.build()
}

// resolve skips typedefs and qualifiers.
func (s *slimmer) resolve(id uint32) uint32 {
	for id != 0 {
		switch s.types[id].kind() {
		case kindTypedef, kindVolatile, kindConst, kindRestrict, kindTypeTag:
			id = s.types[id].head[2]
		default:
			return id
		}
	}
	return 0
}

// walk calls f for each struct, union or enum that a relocation names an entry of. It returns the
// numbers of the access string, as f has changed them. The first number is an index of an array of
// the type, except for enums.
func (s *slimmer) walk(r []uint32, f func(id uint32, entry *int)) (path []int, err error) {
	for word := range strings.SplitSeq(text(s.strings, r[2]), ":") {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("read relocation: %w", err)
		}
		path = append(path, n)
	}
	id := s.resolve(r[1])
	switch {
	case r[3] == enumValueExists || r[3] == enumValue:
		f(id, &path[0])
		return path, nil
	case r[3] > relocateFields:
		return path, nil
	}
	for i := range path[1:] {
		n := path[i+1]
		switch t := s.types[id]; {
		case id == 0:
			return nil, fmt.Errorf("follow relocation %q: it leads to void", text(s.strings, r[2]))
		case t.kind() == kindArray:
			id = s.resolve(t.words[0])
		case t.kind() != kindStruct && t.kind() != kindUnion, n >= len(t.entries):
			return nil, fmt.Errorf("follow relocation %q: kind %d has %d members", text(s.strings, r[2]), t.kind(), len(t.entries))
		default:
			f(id, &path[i+1])
			id = s.resolve(t.entries[n][1])
		}
	}
	return path, nil
}

func (s *slimmer) markEntries(r []uint32) error {
	_, err := s.walk(r, func(id uint32, entry *int) {
		if s.used[id] == nil {
			s.used[id] = map[int]bool{}
		}
		s.used[id][*entry] = true
	})
	return err
}

// markRoots keeps what maps, variables, functions and relocations refer to.
func (s *slimmer) markRoots() {
	for id := range s.types {
		if id > 0 && s.types[id].kind() == kindDatasec {
			s.mark(uint32(id), whole1)
		}
	}
	for _, r := range s.ext[functions].all() {
		s.mark(r[1], whole)
	}
	for _, r := range s.ext[relocations].all() {
		s.mark(r[1], bare)
		switch {
		case r[3] == typeMatches:
			s.mark(r[1], whole)
		case r[3] > relocateFields && r[3] < enumValueExists:
			s.markShape(r[1], map[uint32]bool{})
		}
	}
	for id := range s.types {
		if id > 0 && s.types[id].kind() == kindDeclTag && s.extent[s.types[id].head[2]] >= whole {
			s.mark(uint32(id), whole)
		}
	}
}

// markShape keeps what a relocation of a type compares with the kernel's type: the kinds of types
// that pointers, arrays, functions and their parameters lead to, but not members.
func (s *slimmer) markShape(id uint32, seen map[uint32]bool) {
	if id == 0 || seen[id] {
		return
	}
	seen[id] = true
	t := s.types[id]
	switch t.kind() {
	case kindStruct, kindUnion, kindEnum, kindEnum64, kindFwd:
		s.mark(id, bare)
		return
	}
	s.mark(id, whole)
	if t.kind() == kindArray {
		s.markShape(t.words[0], seen)
		s.markShape(t.words[1], seen)
	}
	if t.refersInHead() {
		s.markShape(t.head[2], seen)
	}
	if t.kind() == kindFuncProto {
		for _, e := range t.entries {
			s.markShape(e[1], seen)
		}
	}
}

// mark keeps a type and what it refers to, to this extent.
func (s *slimmer) mark(id uint32, extent int) {
	if id == 0 || extent <= s.extent[id] {
		return
	}
	t := s.types[id]
	s.extent[id] = extent
	next := extent
	switch t.kind() {
	case kindFunc: // the targets of its pointers are bare, also if it is a variable of a section
		next = whole
	case kindPtr:
		if extent == bare {
			return
		}
		next--
	case kindArray:
		s.mark(t.words[0], next)
		s.mark(t.words[1], next)
	}
	if t.refersInHead() {
		s.mark(t.head[2], next)
	}
	if _, typ := entryRefs(t.kind()); typ >= 0 {
		for i, e := range t.entries {
			if s.keeps(id, i) {
				s.mark(e[typ], next)
			}
		}
	}
}

// keeps reports whether an entry of a type is kept.
func (s *slimmer) keeps(id uint32, entry int) bool {
	switch s.types[id].kind() {
	case kindStruct, kindUnion, kindEnum, kindEnum64:
		return s.extent[id] >= whole || s.used[id][entry]
	}
	return true
}

// build creates the sections from what is kept.
func (s *slimmer) build() (types, ext []byte, err error) {
	s.dropLines()
	ids := s.number()
	names := newTable()
	out := []*btfType{nil}
	entries := map[uint32]map[int]int{} // new indexes of entries
	for id, t := range s.types {
		if id == 0 || s.extent[id] == unused || ids[id] < uint32(len(out)) {
			continue
		}
		entries[uint32(id)] = map[int]int{}
		out = append(out, s.rebuild(uint32(id), t, ids, names, entries[uint32(id)]))
	}
	for i := range s.ext {
		if err := s.renumber(i, ids, names, entries); err != nil {
			return nil, nil, err
		}
	}
	return formatTypes(out, names.data), formatExt(s.ext), nil
}

// dropLines drops source lines except the first one of each function. They only appear in messages of the
// verifier, and take a third of the compressed object. The first ones remain because the loader adds lines
// to instructions that it replaces, and a program with lines needs one for each function.
func (s *slimmer) dropLines() {
	for i := range s.ext[lines].sections {
		sec := &s.ext[lines].sections[i]
		starts := map[uint32]bool{}
		for _, f := range s.ext[functions].sections {
			if f.name == sec.name {
				for _, r := range f.records {
					starts[r[0]] = true
				}
			}
		}
		sec.records = slices.DeleteFunc(sec.records, func(r []uint32) bool { return !starts[r[0]] })
	}
}

// number returns the new numbers of types. All bare pointers are the same type.
func (s *slimmer) number() []uint32 {
	ids := make([]uint32, len(s.types))
	next, pointer := uint32(1), uint32(0)
	for id := 1; id < len(s.types); id++ {
		isPointer := s.types[id].kind() == kindPtr && s.extent[id] == bare
		switch {
		case s.extent[id] == unused:
			continue
		case isPointer && pointer > 0:
			ids[id] = pointer
			continue
		case isPointer:
			pointer = next
		}
		ids[id] = next
		next++
	}
	return ids
}

func (s *slimmer) rebuild(id uint32, t *btfType, ids []uint32, names *table, indexes map[int]int) *btfType {
	n := &btfType{head: t.head, words: slices.Clone(t.words)}
	n.head[0] = names.add(text(s.strings, t.head[0]))
	switch {
	case t.kind() == kindPtr && s.extent[id] == bare:
		n.head[2] = 0
	case t.refersInHead():
		n.head[2] = ids[t.head[2]]
	case t.kind() == kindArray:
		n.words[0], n.words[1] = ids[t.words[0]], ids[t.words[1]]
	}
	name, typ := entryRefs(t.kind())
	for i, e := range t.entries {
		if !s.keeps(id, i) {
			continue
		}
		indexes[i] = len(n.entries)
		e = slices.Clone(e)
		if name >= 0 {
			e[name] = names.add(text(s.strings, e[name]))
		}
		if typ >= 0 {
			e[typ] = ids[e[typ]]
		}
		n.entries = append(n.entries, e)
	}
	if entryWords(t.kind()) > 0 {
		n.head[1] = n.head[1]&^vlenMask | uint32(len(n.entries))
	}
	return n
}

// renumber changes a part of .BTF.ext to the new types and strings.
func (s *slimmer) renumber(part int, ids []uint32, names *table, entries map[uint32]map[int]int) error {
	for i := range s.ext[part].sections {
		sec := &s.ext[part].sections[i]
		sec.name = names.add(text(s.strings, sec.name))
		for _, r := range sec.records {
			switch part {
			case functions:
				r[1] = ids[r[1]]
			case lines:
				r[1], r[2] = names.add(text(s.strings, r[1])), names.add(text(s.strings, r[2]))
			case relocations:
				path, err := s.walk(r, func(id uint32, entry *int) { *entry = entries[id][*entry] })
				if err != nil {
					return err
				}
				r[1], r[2] = ids[r[1]], names.add(join(path))
			}
		}
	}
	return nil
}

func join(path []int) string {
	var words []string
	for _, n := range path {
		words = append(words, strconv.Itoa(n))
	}
	return strings.Join(words, ":")
}
