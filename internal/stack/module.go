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

	"github.com/corescope/corescope/internal/limit"
)

// moduleKey identifies a module. A file has a module per root directory of processes, because debug
// files are searched below the root: one container must not affect the symbols of another.
type moduleKey struct {
	file fileID
	root inodeID
	kind moduleKind
	sum  [32]byte // SHA-256 of the contents of a vDSO
}

type moduleKind uint8

const (
	kindELF moduleKind = iota
	kindVDSO
	kindPerfMap
	kindJITDump
)

// isPerProcess reports whether the file belongs to one process: it has addresses in its memory.
func (k moduleKind) isPerProcess() bool { return k == kindPerfMap || k == kindJITDump }

// module is a mapped file, a vDSO, a perf map or a jitdump. Its symbols are read when the first
// address is looked up. The cache can drop them; then they are read again when needed.
type module struct {
	key     moduleKey
	cache   *cache
	memory  []byte // contents of a vDSO
	loading sync.Mutex
	loaded  atomic.Pointer[symbols]
	used    atomic.Int64 // cache.tick of the last look-up

	// guarded by cache.mu
	held *handle // the open file, until the symbols are read
	refs int     // number of mappings
	size int64   // bytes of loaded
}

// place describes where to open a module again and where to find its debug files.
type place struct {
	path  string
	roots []*root // of the process, if known, and of corescope
	pid   int     // of the process, for notices
	time  uint64  // of the sample, CLOCK_MONOTONIC in ns, or 0 for now
	file  *File   // the open file, or nil
}

// resolve sets the symbol of f. pc is the address to look up, at an offset of the module's file. It
// returns false if the module is not an executable file, so that the address can belong to code of
// a JIT compiler.
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
	if name == "" || grown > 0 { // it searched for a debug file
		m.cache.reportExceeded(s, at.pid)
	}
	return true
}

// symbols returns the symbols of the module, and reads them if necessary.
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
	if s == nil {
		s = &symbols{reason: Unreadable}
	}
	s.noteLimit(err)
	m.cache.reportExceeded(s, at.pid)
	s.servers = m.cache.servers
	m.cache.store(m, s, at)
	return s
}

// read reads the symbols of a module. If it exceeds a limit, it returns an error, and the symbols
// that were read or nil.
func (m *module) read(at place) (*symbols, error) {
	if m.key.kind == kindVDSO {
		return readSymbols(bytes.NewReader(m.memory), int64(len(m.memory)), "[vdso]")
	}
	f, err := m.cache.open(m, at)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	switch m.key.kind {
	case kindPerfMap:
		t, err := parsePerfMap(f, m.key.file.size, at.path)
		if t == nil {
			return nil, err
		}
		return &symbols{inMemory: true, tables: []*table{t}, debugFileSearched: true}, err
	case kindJITDump:
		d, err := parseJITDump(f, at.path)
		if d == nil {
			return nil, err
		}
		return &symbols{inMemory: true, dump: d, debugFileSearched: true}, err
	}
	return readSymbols(f, m.key.file.size, at.path)
}

// symbols is the content of a module.
type symbols struct {
	reason   Reason // why there are no symbols
	inMemory bool   // addresses are of memory, not of a file
	dump     *jitDump
	segments []segment
	buildID  string
	link     debugLink
	servers  *Debuginfod // nil if no servers are configured

	mu                sync.Mutex
	tables            []*table
	debugFileSearched bool
	names             map[symbolIndex]string
	debugInfoRead     bool
	debug             *debugInfo
	exceeded          error // the first limit that was exceeded
	reported          bool
}

// noteLimit stores err if it is the first one of an exceeded limit. reportExceeded reports it.
func (s *symbols) noteLimit(err error) {
	if errors.Is(err, limit.ErrExceeded) && s.exceeded == nil {
		s.exceeded = err
	}
}

// reportExceeded reports once that reading s exceeded a limit, with a process that maps the file.
func (c *cache) reportExceeded(s *symbols, pid int) {
	s.mu.Lock()
	isNew := s.exceeded != nil && !s.reported
	s.reported = s.reported || isNew
	s.mu.Unlock()
	if isNew {
		c.limits.Report(pid, s.exceeded, "functions beyond the limit have no names")
	}
}

type symbolIndex struct{ table, symbol int }

// readSymbols reads an ELF file. A file in another format has no symbols, which is not an error.
// debug/elf can panic on malformed files.
func readSymbols(r io.ReaderAt, size int64, path string) (s *symbols, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, fmt.Errorf("parse ELF file: %v", p)
		}
	}()
	m, err := openImage(r, size, path)
	if errors.Is(err, errNotELF) {
		return &symbols{reason: NoSymbols}, nil
	}
	if err != nil {
		return nil, err
	}
	s = &symbols{segments: m.segments(), buildID: m.buildID(), link: m.debugLink()}
	s.readTables(m)
	linkage, err := m.linkage()
	s.noteLimit(err)
	s.add(linkage)
	return s, nil
}

// readTables reads the symbol tables in the file: .symtab, and if that is incomplete or missing,
// all others. If a table cannot be read, the others are used.
func (s *symbols) readTables(m *image) {
	full, err := m.functions(elf.SHT_SYMTAB)
	s.noteLimit(err)
	s.add(full)
	if full != nil && m.count(elf.SHT_SYMTAB) >= m.count(elf.SHT_DYNSYM) {
		return
	}
	for _, read := range []func() (*table, error){
		func() (*table, error) { return m.functions(elf.SHT_DYNSYM) }, m.goFunctions, m.miniDebug,
	} {
		t, err := read()
		s.noteLimit(err)
		s.add(t)
	}
}

func (s *symbols) add(t *table) {
	if t != nil {
		s.tables = append(s.tables, t)
	}
}

// vaddr converts a file offset to an ELF virtual address, as symbols have it.
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

// find returns the function that contains vaddr, and its start. It searches for a debug file only
// if the tables of the file do not contain the address. grown is the increase of the memory of s.
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

// maxName bounds the length of names.
const maxName = 64 << 10

// name returns the demangled name. n is the increase of memory.
func (s *symbols) name(i symbolIndex) (name string, n int64) {
	if name, ok := s.names[i]; ok {
		return name, 0
	}
	raw := s.tables[i.table].name(i.symbol)
	name = string(raw[:min(len(raw), maxName)])
	if !s.inMemory {
		name = demangleSymbol(name)
	}
	if s.names == nil {
		s.names = make(map[symbolIndex]string)
	}
	s.names[i] = name
	const entry = 64
	return name, int64(len(name)) + entry
}

// demangleSymbol demangles an ELF symbol and removes its version.
func demangleSymbol(name string) string {
	function, isLinkage := strings.CutSuffix(name, pltSuffix)
	function = demangle(unversioned(function))
	if isLinkage {
		function += pltSuffix
	}
	return function
}

// bytes returns the memory of s.
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

// isDeleted reports whether the file has been deleted, so that it cannot be opened by path.
func (at place) isDeleted() bool {
	return strings.HasSuffix(at.path, " (deleted)")
}
