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
	pid   int     // of the process, for notices
	time  uint64  // of the sample on CLOCK_MONOTONIC in ns, 0 for now
	file  *File   // the file itself, nil if it is not held
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
	if name == "" || grown > 0 { // it has looked for a debug file
		m.cache.reportExceeded(s, at.pid)
	}
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
	if s == nil {
		s = &symbols{reason: Unreadable}
	}
	s.note(err)
	m.cache.reportExceeded(s, at.pid)
	s.servers = m.cache.servers
	m.cache.keep(m, s, at)
	return s
}

// read reads the symbols of a module, nil if it cannot be read. Of one that exceeds a limit it can
// return a part, with the error.
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
		return &symbols{inMemory: true, tables: []*table{t}, searched: true}, err
	case kindJITDump:
		d, err := parseJITDump(f, at.path)
		if d == nil {
			return nil, err
		}
		return &symbols{inMemory: true, dump: d, searched: true}, err
	}
	return readSymbols(f, m.key.file.size, at.path)
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
	exceeded error // the first limit that was exceeded
	reported bool
}

// note keeps an error that is to be reported: that of a limit. One is reported for each file.
func (s *symbols) note(err error) {
	if errors.Is(err, limit.ErrExceeded) && s.exceeded == nil {
		s.exceeded = err
	}
}

// reportExceeded reports the limit that reading s for a process has exceeded, if any.
func (c *cache) reportExceeded(s *symbols, pid int) {
	s.mu.Lock()
	isNew := s.exceeded != nil && !s.reported
	s.reported = s.reported || isNew
	s.mu.Unlock()
	if isNew {
		c.limits.Report(pid, s.exceeded, "functions that are not read have no names")
	}
}

type symbolIndex struct{ table, symbol int }

// readSymbols reads an ELF file. What is no ELF file has no symbols, which is
// no error. debug/elf may panic on files made to that end.
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
	s.note(err)
	s.add(linkage)
	return s, nil
}

// readTables reads the tables that the file itself has: of a file with all its
// symbols just those, otherwise whatever names a part of its functions. A
// table that cannot be read leaves the others.
func (s *symbols) readTables(m *image) {
	full, err := m.functions(elf.SHT_SYMTAB)
	s.note(err)
	s.add(full)
	if full != nil && m.count(elf.SHT_SYMTAB) >= m.count(elf.SHT_DYNSYM) {
		return
	}
	for _, read := range []func() (*table, error){
		func() (*table, error) { return m.functions(elf.SHT_DYNSYM) }, m.goFunctions, m.miniDebug,
	} {
		t, err := read()
		s.note(err)
		s.add(t)
	}
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
		name = demangleSymbol(name)
	}
	if s.names == nil {
		s.names = make(map[symbolIndex]string)
	}
	s.names[i] = name
	const entry = 64
	return name, int64(len(name)) + entry
}

// demangleSymbol demangles a name of an ELF file, without its version.
func demangleSymbol(name string) string {
	function, isLinkage := strings.CutSuffix(name, pltSuffix)
	function = demangle(unversioned(function))
	if isLinkage {
		function += pltSuffix
	}
	return function
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
