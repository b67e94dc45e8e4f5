// Package binary finds the programs and libraries that processes run, and the places in
// them where probes go. It knows no BPF.
//
// What it reads belongs to others: a file may be anything, and may change or go at any time.
package binary

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/limit"
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
	contents  *os.File // that elf reads
	elf       *elf.File
	functions []Function
	resolvers []Function
	slots     []Slot
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

// Inode is its number in its file system, as mappings have it.
func (f *File) Inode() uint64 { return f.ID.inode }

// Name is a path of the open file, for the kernel. It is good until Close.
func (f *File) Name() string { return fmt.Sprintf("/proc/self/fd/%d", f.file.Fd()) }

// ReadCode reads an instruction at an offset: up to 16 bytes.
func (f *File) ReadCode(offset uint64) ([]byte, error) {
	r, err := os.Open(f.Name())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Path, err)
	}
	defer r.Close()
	var text [16]byte
	n, err := r.ReadAt(text[:], int64(offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	return text[:n], nil
}

// Close forgets the file.
func (f *File) Close() error {
	if f.elf != nil {
		f.contents.Close()
	}
	return f.file.Close()
}

func (f *File) open() (*elf.File, error) {
	if f.elf != nil {
		return f.elf, nil
	}
	r, err := os.Open(f.Name())
	if err != nil {
		return nil, err
	}
	e, err := limit.ELF(r, f.Path)
	if err == nil && (e.Class != elf.ELFCLASS64 || e.Machine != machine()) {
		err = ErrForeign
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	f.contents, f.elf = r, e
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
// Returns ErrForeign, and a [limit.Error] for a file that exceeds a limit.
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

// Address turns the place of code in the file, or of a mapping of code, into an address, as symbols have it.
func Address(e *elf.File, offset uint64) (vaddr uint64, ok bool) {
	page := uint64(os.Getpagesize())
	for _, p := range e.Progs {
		// Mappings begin at the page that a segment begins in.
		begin := p.Off &^ (page - 1)
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && offset >= begin && offset < p.Off+p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// IsGo tells whether the file is a program of Go.
func (f *File) IsGo() bool {
	is := false
	// What cannot be read is none.
	_ = f.Parse(func(e *elf.File) error {
		is = e.Section(".gopclntab") != nil || e.Section(".go.buildinfo") != nil
		return nil
	})
	return is
}

// IsProgram tells whether the file is a program, and no library.
func (f *File) IsProgram() bool {
	is := false
	// What cannot be read is none.
	_ = f.Parse(func(e *elf.File) error {
		const pie, maxDynamic = 0x08000000, 1 << 20 // DF_1_PIE
		if s := e.SectionByType(elf.SHT_DYNAMIC); s != nil && s.FileSize > maxDynamic {
			return nil
		}
		flags, err := e.DynValue(elf.DT_FLAGS_1)
		is = e.Type == elf.ET_EXEC || e.Type == elf.ET_DYN && err == nil && len(flags) > 0 && flags[0]&pie != 0
		return nil
	})
	return is
}
