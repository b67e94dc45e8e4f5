// Package binary finds the executables and libraries that processes map, and the file offsets at
// which uprobes are attached. It does not depend on BPF.
//
// The files and mappings are untrusted input. They can change or disappear at any time.
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
	// ErrIrregular is returned for directories, devices, pipes and sockets.
	ErrIrregular = errors.New("not a regular file")
	// ErrForeign is returned for an ELF file of another architecture, or for a 32-bit one.
	ErrForeign = errors.New("not a 64-bit ELF file for this machine's architecture")
)

// File is an executable or library. It is kept open, so it stays the same file if its path is
// replaced or deleted.
type File struct {
	// Path is relative to the root directory of the process that maps the file.
	Path string
	ID   ID

	file      *os.File // O_PATH
	contents  *os.File // read by elf
	elf       *elf.File
	functions []Function
	resolvers []Function
	slots     []Slot
}

// ID identifies a file as uprobes do: a file in a lower layer that several overlayfs mounts share
// is a single file. stat reports a different device for it in each of these mounts, so on overlayfs
// the ID has the modification and change time, which are the same in all of them, instead of the
// device.
type ID struct {
	dev, inode   uint64
	mtime, ctime int64
}

// Open opens a file by its path in corescope's mount namespace.
//
// Returns ErrIrregular.
func Open(path string) (*File, error) {
	// O_PATH, because opening a device can have side effects, and opening a pipe can block.
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

// Inode returns the inode number, as in /proc/PID/maps.
func (f *File) Inode() uint64 { return f.ID.inode }

// Name returns a path that leads to the open file in this process. It is valid until Close.
func (f *File) Name() string { return fmt.Sprintf("/proc/self/fd/%d", f.file.Fd()) }

// ReadCode reads up to 16 bytes at a file offset: enough for one instruction.
func (f *File) ReadCode(offset uint64) ([]byte, error) {
	r := f.contents
	if r == nil {
		var err error
		if r, err = os.Open(f.Name()); err != nil {
			return nil, fmt.Errorf("open %s: %w", f.Path, err)
		}
		defer r.Close()
	}
	var text [16]byte
	n, err := r.ReadAt(text[:], int64(offset))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	return text[:n], nil
}

// Close closes the file.
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

// Parse calls read with the file's ELF structure, which is valid until read returns. It returns a
// panic of debug/elf, which a crafted file can cause, as an error.
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

// Offset converts a virtual address, as in symbols and notes, to a file offset.
func Offset(e *elf.File, vaddr uint64) (offset uint64, ok bool) {
	for _, p := range e.Progs {
		if p.Type == elf.PT_LOAD && vaddr-p.Vaddr < p.Filesz {
			return vaddr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// Address converts the file offset of code, or of the start of an executable mapping, to a virtual
// address as in symbols.
func Address(e *elf.File, offset uint64) (vaddr uint64, ok bool) {
	page := uint64(os.Getpagesize())
	for _, p := range e.Progs {
		// A mapping starts at the page that contains the start of the segment.
		begin := p.Off &^ (page - 1)
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && offset >= begin && offset < p.Off+p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// IsGo reports whether the file is a Go executable. It is false if the file cannot be read.
func (f *File) IsGo() bool {
	isGo := false
	_ = f.Parse(func(e *elf.File) error {
		isGo = e.Section(".gopclntab") != nil || e.Section(".go.buildinfo") != nil
		return nil
	})
	return isGo
}

// IsProgram reports whether the file is an executable, not a library. It is false if the file
// cannot be read.
func (f *File) IsProgram() bool {
	isProgram := false
	_ = f.Parse(func(e *elf.File) error {
		const pie, maxDynamic = 0x08000000, 1 << 20 // DF_1_PIE
		if s := e.SectionByType(elf.SHT_DYNAMIC); s != nil && s.FileSize > maxDynamic {
			return nil
		}
		flags, err := e.DynValue(elf.DT_FLAGS_1)
		isProgram = e.Type == elf.ET_EXEC || e.Type == elf.ET_DYN && err == nil && len(flags) > 0 && flags[0]&pie != 0
		return nil
	})
	return isProgram
}
