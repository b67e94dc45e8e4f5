package stack

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// moduleKey tells modules apart. Files of the same identity count as two if
// the processes have different roots: their debug files come from there, and
// one container must not name the functions of another.
type moduleKey struct {
	file fileID
	root inodeID
	kind moduleKind
	sum  [32]byte // SHA-256 of the contents, for a vDSO
}

type moduleKind uint8

const (
	kindELF moduleKind = iota
	kindVDSO
	kindPerfMap
	kindJITDump
)

// ofProcess tells that the file is of one process: it names addresses of its memory.
func (k moduleKind) ofProcess() bool { return k == kindPerfMap || k == kindJITDump }

// module is a file that processes map, a vDSO, a perf map or a jitdump. Its symbols are
// read when the first address is looked up; the cache may drop them, and then
// they are read again.
type module struct {
	key     moduleKey
	cache   *cache
	memory  []byte // of a vDSO
	loading sync.Mutex
	loaded  atomic.Pointer[symbols]
	used    atomic.Int64 // time of the last look-up, in look-ups

	// guarded by cache.mu
	held *handle // what was found when the mapping was seen
	refs int     // mappings
	size int64   // of loaded
}

// place is where a process sees a module: needed to open it again, and to find
// its debug files.
type place struct {
	path  string
	roots []*root // of the process if known, and our own
	time  uint64  // of the sample on CLOCK_MONOTONIC in ns, 0 for now
}

// resolve names f, whose address pc lies at offset of the module's file. It
// returns false if that is not known to be a program, but perhaps the memory
// of a JIT compiler.
func (m *module) resolve(f *Frame, pc, offset uint64, at place) bool {
	s := m.symbols(at)
	m.used.Store(m.cache.tick.Add(1))
	f.BuildID, f.Offset, f.Reason = s.buildID, offset, s.reason
	if s.reason != Named {
		return false
	}
	vaddr, ok := s.vaddr(offset)
	f.Offset, f.Reason = vaddr, NoSymbols
	if !ok {
		return true
	}
	name, start, grown := s.find(vaddr, at)
	if name != "" {
		f.Name, f.Offset, f.Reason = name, vaddr-start+f.Addr-pc, Named
	}
	m.cache.grow(m, s, grown)
	return true
}

// symbols returns what the module names, reading it if need be.
func (m *module) symbols(at place) *symbols {
	if s := m.loaded.Load(); s != nil {
		return s
	}
	m.loading.Lock()
	defer m.loading.Unlock()
	if s := m.loaded.Load(); s != nil {
		return s
	}
	s, err := m.read(at)
	if err != nil {
		s = &symbols{reason: Unreadable}
	}
	s.servers = m.cache.servers
	m.cache.keep(m, s, at)
	return s
}

func (m *module) read(at place) (*symbols, error) {
	if m.key.kind == kindVDSO {
		return readSymbols(bytes.NewReader(m.memory), int64(len(m.memory)))
	}
	f, err := m.cache.open(m, at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if m.key.kind == kindPerfMap {
		t, err := parsePerfMap(f)
		return &symbols{inMemory: true, tables: []*table{t}, searched: true}, err
	}
	if m.key.kind == kindJITDump {
		d, err := parseJITDump(f)
		return &symbols{inMemory: true, dump: d, searched: true}, err
	}
	return readSymbols(f, m.key.file.size)
}

// symbols is what was read of a module.
type symbols struct {
	reason   Reason // why it names nothing
	inMemory bool   // it names addresses of memory, not of a file
	dump     *jitDump
	segments []segment
	buildID  string
	link     debugLink
	servers  *Debuginfod // nil if none is asked

	mu       sync.Mutex
	tables   []*table
	searched bool // for debug files
	names    map[symbolIndex]string
	debugged bool // that debugging information was looked for
	debug    *debugInfo
}

type symbolIndex struct{ table, symbol int }

// readSymbols reads an ELF file. What is no ELF file has no symbols, which is
// no error. debug/elf may panic on files made to that end.
func readSymbols(r io.ReaderAt, size int64) (s *symbols, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("parse ELF file: %v", p)
		}
	}()
	m, err := openImage(r, size)
	if errors.Is(err, errNotELF) {
		return &symbols{reason: NoSymbols}, nil
	}
	if err != nil {
		return nil, err
	}
	s = &symbols{segments: m.segments(), buildID: m.buildID(), link: m.debugLink()}
	s.readTables(m)
	return s, nil
}

// readTables reads the tables that the file itself has: of a file with all its
// symbols just those, otherwise whatever names a part of its functions. A
// table that cannot be read leaves the others.
func (s *symbols) readTables(m *image) {
	full, _ := m.functions(elf.SHT_SYMTAB)
	s.add(full)
	if full != nil && m.count(elf.SHT_SYMTAB) >= m.count(elf.SHT_DYNSYM) {
		return
	}
	exported, _ := m.functions(elf.SHT_DYNSYM)
	s.add(exported)
	s.add(m.goFunctions())
	mini, _ := m.miniDebug()
	s.add(mini)
}

func (s *symbols) add(t *table) {
	if t != nil {
		s.tables = append(s.tables, t)
	}
}

// vaddr translates an offset within the file to the address the symbols use.
func (s *symbols) vaddr(offset uint64) (uint64, bool) {
	if s.inMemory {
		return offset, true
	}
	for _, g := range s.segments {
		if offset-g.offset < g.size {
			return offset - g.offset + g.vaddr, true
		}
	}
	return offset, false
}

// find returns the function that covers vaddr and where it starts. Only an
// address that the file's own tables do not name makes it look for a debug
// file. grown is by how much the memory of s has grown.
func (s *symbols) find(vaddr uint64, at place) (name string, start uint64, grown int64) {
	if s.dump != nil {
		name, start := s.dump.find(vaddr, at.time)
		return string(name), start, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; ; i++ {
		if i == len(s.tables) {
			t := s.debugTable(at)
			if t == nil {
				return "", 0, grown
			}
			s.add(t)
			grown += t.bytes()
		}
		t := s.tables[i]
		if j := t.lookup(vaddr); j >= 0 {
			name, n := s.name(symbolIndex{i, j})
			return name, t.starts[j], grown + n
		}
	}
}

// maxName bounds the names that are remembered.
const maxName = 64 << 10

// name returns the demangled name; n is the memory it took to remember it.
func (s *symbols) name(i symbolIndex) (name string, n int64) {
	if name, ok := s.names[i]; ok {
		return name, 0
	}
	raw := s.tables[i.table].name(i.symbol)
	name = string(raw[:min(len(raw), maxName)])
	if !s.inMemory {
		name = demangle(unversioned(name))
	}
	if s.names == nil {
		s.names = make(map[symbolIndex]string)
	}
	s.names[i] = name
	const entry = 64
	return name, int64(len(name)) + entry
}

// bytes is the memory s holds.
func (s *symbols) bytes() int64 {
	const self = 512
	n := int64(self)
	if s.dump != nil {
		n += s.dump.bytes()
	}
	for _, t := range s.tables {
		n += t.bytes()
	}
	return n
}

// isDeleted reports whether no path leads to the file any more.
func (at place) isDeleted() bool {
	return strings.HasSuffix(at.path, " (deleted)")
}
