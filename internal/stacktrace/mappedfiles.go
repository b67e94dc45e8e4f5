package stacktrace

import (
	"cmp"
	"maps"
	"slices"

	mapped "github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/system"
)

// mappedFile is a file that running processes map executable.
type mappedFile struct {
	mapping  mapped.Mapped // one of the mappings
	mappings int
	cpus     float64 // how many CPUs its processes have used on average since they started
}

// openMapped opens the files that processes map when a system-wide run starts, and requests their
// unwind tables, first those of processes that use the CPUs most. A child that one of these processes
// forks has no mmap records of its own, and can exit before its mappings are read. If not all of the
// files can be kept open, those with the most mappings are.
func (t *Traces) openMapped() {
	files := filesByMappings()
	files = files[:min(len(files), t.processes.MaxFiles()/2)] // the other half is for later files
	slices.SortFunc(files, func(a, b *mappedFile) int {
		return cmp.Or(cmp.Compare(b.cpus, a.cpus), cmp.Compare(b.mappings, a.mappings))
	})
	for _, f := range files {
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
	var pid uint32
	var cpus float64
	_, _ = mapped.Scan(nil, func(m *mapped.Mapped) {
		if m.PID != pid {
			pid, cpus = m.PID, system.CPUs("/", m.PID)
		}
		id := inode{m.Inode, m.Device}
		f := files[id]
		if f == nil {
			if _, fits := paths.Intern([]byte(m.Path)); !fits || len(files) >= limit.MappedFiles {
				return
			}
			f = &mappedFile{mapping: *m}
			files[id] = f
		}
		f.mappings++
		f.cpus += cpus
	})
	return slices.SortedFunc(maps.Values(files), func(a, b *mappedFile) int {
		return cmp.Or(cmp.Compare(b.mappings, a.mappings), cmp.Compare(a.mapping.Inode, b.mapping.Inode))
	})
}
