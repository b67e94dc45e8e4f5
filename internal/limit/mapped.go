package limit

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// WithSection calls use with the contents of a section that is not compressed, which are valid until
// use returns. r is what the section is read from, and path is used in error messages.
//
// The section of a file is mapped: no memory is allocated for it, and no contents are copied. If a
// page cannot be read, because the file is shorter than the section, becomes shorter meanwhile, or is
// on a disk that fails, use is not continued, and WithSection returns an error. So use must not hold
// locks, and start no goroutines that read the contents.
//
// It returns an *Error if the section has more than max bytes.
func WithSection(s *elf.Section, r io.ReaderAt, path string, max int64, use func(contents []byte)) error {
	f, isFile := r.(*os.File)
	if isFile && s.Type != elf.SHT_NOBITS && s.Flags&elf.SHF_COMPRESSED == 0 && s.FileSize <= uint64(max) {
		err := withMapped(f, s.Offset, s.FileSize, use)
		if errors.Is(err, errNoPage) {
			return fmt.Errorf("read section %s of %s: %w", s.Name, path, err)
		}
		if err == nil {
			return nil
		}
	}
	contents, err := Section(s, path, max)
	if err != nil {
		return err
	}
	use(contents)
	return nil
}

// errNoPage is returned if a page of a mapping cannot be read.
var errNoPage = errors.New("a page cannot be read: the file is too short, or its disk fails")

// withMapped calls use with a part of a file, as WithSection does. It returns errNoPage, and other errors
// for what cannot be mapped, such as a file of a file system without mappings.
func withMapped(f *os.File, offset, size uint64, use func([]byte)) (err error) {
	inPage := offset % uint64(os.Getpagesize())
	if size == 0 || size > math.MaxInt64-inPage || offset > math.MaxInt64 {
		return unix.EINVAL
	}
	pages, err := unix.Mmap(int(f.Fd()), int64(offset-inPage), int(size+inPage), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer unix.Munmap(pages)
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if _, isFault := p.(interface{ Addr() uintptr }); isFault {
			err = errNoPage
		} else if p != nil {
			panic(p)
		}
	}()
	use(pages[inPage:])
	return nil
}
