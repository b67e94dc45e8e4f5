package stacktrace

import (
	"cmp"
	"maps"
	"slices"

	mapped "github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
)

// mappedFile is a file that running processes map executable.
type mappedFile struct {
	mapping  mapped.Mapped // one of the mappings
	mappings int
}

// openMapped opens the files that processes map when a system-wide run starts, and requests their
// unwind tables. A child that one of these processes forks has no mmap records of its own, and can
// exit before its mappings are read. If not all of the files can be kept open, those with the most
// mappings are.
func (t *Traces) openMapped() {
	files := filesByMappings()
	for _, f := range files[:min(len(files), t.processes.MaxFiles()/2)] { // the other half is for later files
		t.unwinding.prefetch(t.processes.FileOfMmap(&f.mapping))
	}
}

// filesByMappings lists the files that processes map executable, those with the most mappings
// first. Processes whose mappings cannot be read are left out.
func filesByMappings() []*mappedFile {
	type inode struct {
		number uint64
		device uint32
	}
	files := map[inode]*mappedFile{}
	var paths limit.Paths
	_, _ = mapped.Scan(nil, func(m *mapped.Mapped) {
		id := inode{m.Inode, m.Device}
		if f := files[id]; f != nil {
			f.mappings++
		} else if _, fits := paths.Intern([]byte(m.Path)); fits && len(files) < limit.MappedFiles {
			files[id] = &mappedFile{*m, 1}
		}
	})
	return slices.SortedFunc(maps.Values(files), func(a, b *mappedFile) int {
		return cmp.Or(cmp.Compare(b.mappings, a.mappings), cmp.Compare(a.mapping.Inode, b.mapping.Inode))
	})
}
