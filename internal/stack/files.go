package stack

import (
	"fmt"
	"os"
	"sync"

	"github.com/corescope/corescope/internal/binary"
)

// Code is an executable mapping that contains an address of a user stack, as the BPF program found
// it when it walked the stack (struct stack_mapping).
type Code struct {
	Start, End uint64
	// Offset is the file offset of Start.
	Offset uint64
	File   binary.KernelID
}

func (c *Code) holds(pc uint64) bool { return pc >= c.Start && pc < c.End }

// File is a file that processes map executable. It is kept open, so that it can be read after these
// processes have exited.
type File struct {
	ID binary.KernelID
	// Path is the path as in /proc/PID/maps.
	Path string

	files  *files
	handle *handle // nil for the vDSO
	used   uint64  // files.tick at the last use
	closed bool    // the handle is closed
}

// maxFiles bounds the number of open files by default. If it is reached, the least recently used
// file is closed.
const maxFiles = 1024

// files are the open files by their identity in the kernel.
type files struct {
	mu   sync.Mutex
	byID map[binary.KernelID]*File
	tick uint64
	max  int // bounds byID
}

// find returns a file that is open, or nil.
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

// add adds a file and takes ownership of h. If the file has been added before, it closes h.
func (fs *files) add(id binary.KernelID, h *handle, path string) *File {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.byID[id]; f != nil { // added by another goroutine
		if h != nil {
			h.Close()
		}
		return f
	}
	if fs.byID == nil {
		fs.byID = make(map[binary.KernelID]*File)
	}
	if len(fs.byID) >= fs.max {
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
	f.closed = true
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
	if f.closed || f.handle == nil {
		return nil, fmt.Errorf("open %s: %w", f.Path, os.ErrClosed)
	}
	return f.handle.open()
}

// Find returns the file of a mapping of process pid, and opens it if necessary: by the mapping
// (/proc/PID/map_files), or else by the path from the mmap record or from /proc/PID/maps. It
// returns nil if that fails, or if the mapping has no file.
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

// openCode opens the file of a mapping if it is still the same file.
func (ps *Processes) openCode(pid int, c *Code) *handle {
	path := ps.mmaps.path(pid, c)
	m := binary.Mapped{PID: uint32(pid), Start: c.Start, End: c.End}
	if h := c.check(handleAt(m.Link())); h != nil {
		return h
	}
	// The thread-group leader has no mappings if it exited before other threads.
	maps, _ := binary.Executable(uint32(pid)) // empty if the process has exited
	for i := range maps {
		if m := &maps[i]; m.Start == c.Start && m.Offset == c.Offset {
			if h := c.check(handleAt(m.Link())); h != nil {
				return h
			}
			path = m.Path
		}
	}
	return ps.openPath(pid, path, c)
}

// openPath opens path below the root of the process, or below corescope's own.
func (ps *Processes) openPath(pid int, path string, c *Code) *handle {
	if path == "" {
		return nil
	}
	if r, err := openRoot(fmt.Sprintf("/proc/%d/root", pid)); err == nil {
		defer r.dir.Close()
		if h := c.check(r.handle(path)); h != nil {
			return h
		}
	}
	if ps.self == nil {
		return nil
	}
	return c.check(ps.self.handle(path))
}

// check returns h if it is the file of the mapping; otherwise it closes h and returns nil. Inode
// number or change time must match, not both: stat and the kernel can disagree about the inode
// number on overlayfs, and about the change time on network file systems.
func (c *Code) check(h *handle, err error) *handle {
	if err != nil {
		return nil
	}
	if h.id.inode != c.File.Inode && h.changed != c.File.Changed {
		h.Close()
		return nil
	}
	return h
}

// path returns the path of the file as in /proc/PID/maps, without escapes.
func (h *handle) path() string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", h.file.Fd()))
	return path
}

// FileOfMmap opens the file of an mmap record. It returns nil if that fails or if it is another
// file.
func (ps *Processes) FileOfMmap(m *binary.Mapped) *File {
	c := Code{Start: m.Start, End: m.End, Offset: m.Offset, File: binary.KernelID{Inode: m.Inode, Device: m.Device}}
	h, err := handleAt(m.Link())
	// The process can have mapped another file there since.
	if h = c.check(h, err); h == nil && ps.self != nil {
		h = c.check(ps.self.handle(m.Path))
	}
	if h == nil {
		return nil
	}
	c.File.Changed = h.changed
	if f := ps.files.find(c.File); f != nil {
		h.Close()
		return f
	}
	return ps.files.add(c.File, h, h.path())
}

// module returns the symbols of the file for processes whose first root is roots[0], and the place
// with its debug files. The caller releases the module.
func (f *File) module(ps *Processes, roots []*root) (*module, place) {
	at := place{path: f.Path, roots: roots, file: f}
	if f.ID.Kind == binary.KindVDSO {
		return ps.ownVDSO(), at
	}
	key := moduleKey{file: f.handle.id}
	if len(roots) > 0 {
		key.root = roots[0].id
	}
	return ps.cache.module(key, nil, nil), at
}

// ownVDSO returns the vDSO of corescope's process, which all 64-bit processes have in common.
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
