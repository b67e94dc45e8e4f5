// Package binary finds the programs and libraries that processes run, and the places in
// them where probes go. It knows no BPF.
//
// What it reads belongs to others: a file may be anything, and may change or go at any time.
package binary

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

var (
	// ErrIrregular is returned for what is not a regular file.
	ErrIrregular = errors.New("not a regular file")
	// ErrForeign is returned for a file that is not for this machine's 64-bit programs.
	ErrForeign = errors.New("not a 64-bit program of this machine")
)

// File is a program or library. It is held open, so that it stays the same file whatever
// becomes of its path.
type File struct {
	// Path is what it was found by: the path below the root of its process.
	Path string
	ID   ID

	file      *os.File // O_PATH
	elf       *elf.File
	functions []Function
}

// ID tells files apart. A file of a layer that several mounts of overlayfs share is one
// file to the kernel's probes: there it has no device, as each mount shows it with another,
// but times, which all mounts show alike.
type ID struct {
	dev, inode   uint64
	mtime, ctime int64
}

// Open opens a file by its path in our own mount namespace.
func Open(path string) (*File, error) {
	// O_PATH, as opening a device or a pipe could act on it, or block.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := &File{Path: path, file: os.NewFile(uintptr(fd), path)}
	if f.ID, err = identify(fd); err != nil {
		f.file.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return f, nil
}

func identify(fd int) (ID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return ID{}, fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ID{}, ErrIrregular
	}
	var sys unix.Statfs_t
	if err := unix.Fstatfs(fd, &sys); err == nil && sys.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return ID{inode: st.Ino, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano()}, nil
	}
	return ID{dev: st.Dev, inode: st.Ino}, nil
}

// Name is a path of the open file, for the kernel. It is good until Close.
func (f *File) Name() string { return fmt.Sprintf("/proc/self/fd/%d", f.file.Fd()) }

// Close forgets the file.
func (f *File) Close() error {
	if f.elf != nil {
		f.elf.Close()
	}
	return f.file.Close()
}

func (f *File) open() (*elf.File, error) {
	if f.elf != nil {
		return f.elf, nil
	}
	e, err := elf.Open(f.Name())
	if err != nil {
		return nil, err
	}
	if e.Class != elf.ELFCLASS64 || e.Machine != machine() {
		e.Close()
		return nil, ErrForeign
	}
	f.elf = e
	return e, nil
}

func machine() elf.Machine {
	if runtime.GOARCH == "arm64" {
		return elf.EM_AARCH64
	}
	return elf.EM_X86_64
}

// Parse calls read with the file's ELF structure, which is good until read returns.
// A panic of debug/elf, as files made to that end cause, is an error.
//
// Returns ErrForeign.
func (f *File) Parse(read func(*elf.File) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parse %s: %v", f.Path, p)
		}
	}()
	e, err := f.open()
	if err != nil {
		return fmt.Errorf("parse %s: %w", f.Path, err)
	}
	if err := read(e); err != nil {
		return fmt.Errorf("parse %s: %w", f.Path, err)
	}
	return nil
}

// Offset turns an address, as symbols and notes have it, into a place in the file.
func Offset(e *elf.File, vaddr uint64) (offset uint64, ok bool) {
	for _, p := range e.Progs {
		if p.Type == elf.PT_LOAD && vaddr-p.Vaddr < p.Filesz {
			return vaddr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}
