package stack

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/corescope/corescope/internal/binary"
)

// Code is an executable mapping that the kernel's programs found an address of a stack in,
// as it was then: struct stack_mapping.
type Code struct {
	Start, End uint64
	// Offset is that of Start in the file.
	Offset uint64
	File   binary.KernelID
}

func (c *Code) holds(pc uint64) bool { return pc >= c.Start && pc < c.End }

// File is a file that processes map as code. It stays open, so that it can be read after
// they have ended.
type File struct {
	ID binary.KernelID
	// Path is as /proc/PID/maps writes it.
	Path string

	files  *files
	handle *handle // nil for the vDSO
	used   uint64
	gone   bool // the handle is closed
}

// maxFiles bounds the files that are open; the one that was not used for the longest time
// is closed first.
const maxFiles = 1024

// files are those that were met, by what the kernel calls them.
type files struct {
	mu   sync.Mutex
	byID map[binary.KernelID]*File
	tick uint64
}

// find returns a file that was met before, or nil.
func (fs *files) find(id binary.KernelID) *File {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	f := fs.byID[id]
	if f != nil {
		fs.tick++
		f.used = fs.tick
	}
	return f
}

// add takes h over.
func (fs *files) add(id binary.KernelID, h *handle, path string) *File {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.byID[id]; f != nil { // by another goroutine
		if h != nil {
			h.Close()
		}
		return f
	}
	if fs.byID == nil {
		fs.byID = make(map[binary.KernelID]*File)
	}
	if len(fs.byID) >= maxFiles {
		fs.dropOldest()
	}
	fs.tick++
	f := &File{ID: id, Path: path, files: fs, handle: h, used: fs.tick}
	fs.byID[id] = f
	return f
}

func (fs *files) dropOldest() {
	var oldest *File
	for _, f := range fs.byID {
		if oldest == nil || f.used < oldest.used {
			oldest = f
		}
	}
	oldest.close()
	delete(fs.byID, oldest.ID)
}

func (f *File) close() {
	f.gone = true
	if f.handle != nil {
		f.handle.Close()
	}
}

func (fs *files) close() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range fs.byID {
		f.close()
	}
	fs.byID = nil
}

// Open opens the file for reading.
func (f *File) Open() (*os.File, error) {
	f.files.mu.Lock()
	defer f.files.mu.Unlock()
	if f.gone || f.handle == nil {
		return nil, fmt.Errorf("open %s: %w", f.Path, os.ErrClosed)
	}
	return f.handle.open()
}

// file is the path to open below a root.
func (f *File) file() string { return unescapePath(f.Path) }

// Find returns the file of a mapping of process pid. If it was not met before it is opened,
// by the mapping, or by its path where the process has ended and the mapping was heard of. It is
// nil where that fails, and for memory that is of no file.
func (ps *Processes) Find(pid int, c *Code) *File {
	if f := ps.files.find(c.File); f != nil {
		return f
	}
	switch c.File.Kind {
	case binary.KindVDSO:
		return ps.files.add(c.File, nil, "[vdso]")
	case binary.KindFile:
		if h := ps.openCode(pid, c); h != nil {
			return ps.files.add(c.File, h, h.path())
		}
	}
	return nil
}

// openCode opens the file of a mapping if it is still the same.
func (ps *Processes) openCode(pid int, c *Code) *handle {
	path := ps.heard.path(pid, c)
	m := binary.Mapped{PID: uint32(pid), Start: c.Start, End: c.End}
	if h := c.same(handleAt(m.Link())); h != nil {
		return h
	}
	// The first thread may have exited before others, and then has no mappings.
	maps, _ := binary.Executable(uint32(pid)) // of a process that has ended there are none
	for i := range maps {
		if m := &maps[i]; m.Start == c.Start && m.Offset == c.Offset {
			if h := c.same(handleAt(m.Link())); h != nil {
				return h
			}
			path = unescapePath(m.Path)
		}
	}
	return ps.openPath(pid, path, c)
}

// openPath opens the file below the root of the process, or our own, where the mapping cannot be opened.
func (ps *Processes) openPath(pid int, path string, c *Code) *handle {
	if path == "" {
		return nil
	}
	if r, err := openRoot(fmt.Sprintf("/proc/%d/root", pid)); err == nil {
		defer r.dir.Close()
		if h := c.same(r.handle(path)); h != nil {
			return h
		}
	}
	if ps.self == nil {
		return nil
	}
	return c.same(ps.self.handle(path))
}

// same returns what was opened if it is the file of the mapping. Of inode number and change
// time one can differ from the kernel's: on overlayfs the first, on network file systems the second.
func (c *Code) same(h *handle, err error) *handle {
	if err != nil {
		return nil
	}
	if h.id.inode != c.File.Inode && h.changed != c.File.Changed {
		h.Close()
		return nil
	}
	return h
}

// path is that of the file, as /proc/PID/maps writes it.
func (h *handle) path() string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", h.file.Fd()))
	return strings.ReplaceAll(path, "\n", `\012`)
}

// FileHeard returns the file of a mapping that was heard of as it was made, or nil.
func (ps *Processes) FileHeard(m *binary.Mapped) *File {
	c := Code{Start: m.Start, End: m.End, Offset: m.Offset, File: binary.KernelID{Inode: m.Inode, Device: m.Device}}
	h, err := handleAt(m.Link())
	if err != nil && ps.self != nil {
		h, err = ps.self.handle(m.Path)
	}
	if h = c.same(h, err); h == nil {
		return nil
	}
	c.File.Changed = h.changed
	if f := ps.files.find(c.File); f != nil {
		h.Close()
		return f
	}
	return ps.files.add(c.File, h, h.path())
}

// module returns the symbols of the file for processes of a root, and where to look for its
// debug files. It is to be released.
func (f *File) module(ps *Processes, roots []*root) (*module, place) {
	at := place{path: f.file(), roots: roots, file: f}
	if f.ID.Kind == binary.KindVDSO {
		return ps.ownVDSO(), at
	}
	key := moduleKey{file: f.handle.id}
	if len(roots) > 0 {
		key.root = roots[0].id
	}
	return ps.cache.module(key, nil, nil), at
}

// ownVDSO is the module of our own process's vDSO, which is that of all 64-bit processes.
func (ps *Processes) ownVDSO() *module {
	ps.vdsoOnce.Do(func() {
		maps, _ := binary.OwnExecutable() // without it, the vDSO has no symbols
		for _, m := range maps {
			if m.Path != "[vdso]" {
				continue
			}
			if d, err := openProc(int(m.PID)); err == nil {
				ps.vdsoMemory, _ = d.vdso(m.Start, m.End)
				d.Close()
			}
		}
	})
	return ps.cache.vdso(ps.vdsoMemory)
}

func unescapePath(path string) string { return strings.ReplaceAll(path, `\012`, "\n") }
