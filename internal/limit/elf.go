package limit

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ELF parses the header, the segments and the section headers of an ELF file. path is used in error
// messages. Unlike elf.NewFile, it limits the memory that a malformed file can make it allocate.
//
// Read the contents of sections with [Section], or with [Decompressed] for debugging information. All
// other compressed sections are returned as sections without contents.
func ELF(r io.ReaderAt, path string) (*elf.File, error) {
	if err := checkSections(r, path); err != nil {
		return nil, err
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	for _, s := range f.Sections {
		// Linkers and objcopy compress only debugging information. Methods of elf.File would
		// decompress any section, without a limit.
		if s.Flags&elf.SHF_COMPRESSED != 0 && !strings.HasPrefix(s.Name, ".debug_") ||
			strings.HasPrefix(s.Name, ".zdebug") && s.Type != elf.SHT_PROGBITS {
			s.Type = elf.SHT_NOBITS
		}
	}
	return f, nil
}

// header is the part of the ELF header that describes the section headers.
type header struct {
	order                binary.ByteOrder
	is64                 bool
	offset               int64
	entry, count, string uint64
}

var errHeader = errors.New("malformed ELF header")

// checkSections checks the number of sections and the size of their names.
func checkSections(r io.ReaderAt, path string) error {
	h, err := readHeader(r)
	if err != nil || h.offset == 0 {
		return err
	}
	first, err := h.section(r, 0)
	if err != nil {
		return err
	}
	if h.count == 0 { // the first section header contains the number
		h.count = first.size
	}
	if h.count > Sections {
		return &Error{path, Sections, "sections"}
	}
	if h.string == uint64(elf.SHN_XINDEX) {
		h.string = uint64(first.link)
	}
	names, err := h.section(r, h.string)
	if err != nil {
		return err
	}
	if names.flags&uint64(elf.SHF_COMPRESSED) != 0 {
		return fmt.Errorf("%w: compressed section names", errHeader)
	}
	if names.size > SectionNames && elf.SectionType(names.kind) != elf.SHT_NOBITS {
		return &Error{"section names of " + path, SectionNames, "bytes"}
	}
	return nil
}

func readHeader(r io.ReaderAt) (h header, err error) {
	var b [64]byte
	if n, err := r.ReadAt(b[:], 0); err != nil && (!errors.Is(err, io.EOF) || n < 52) {
		return h, fmt.Errorf("read ELF header: %w", err)
	}
	h.order = binary.ByteOrder(binary.LittleEndian)
	if elf.Data(b[elf.EI_DATA]) == elf.ELFDATA2MSB {
		h.order = binary.BigEndian
	}
	half := func(offset int) uint64 { return uint64(h.order.Uint16(b[offset:])) }
	if h.is64 = elf.Class(b[elf.EI_CLASS]) == elf.ELFCLASS64; h.is64 {
		h.offset, h.entry, h.count, h.string = int64(h.order.Uint64(b[40:])), half(58), half(60), half(62)
	} else {
		h.offset, h.entry, h.count, h.string = int64(h.order.Uint32(b[32:])), half(46), half(48), half(50)
	}
	if h.offset < 0 {
		return h, errHeader
	}
	return h, nil
}

// sectionHeader contains some members of a section header.
type sectionHeader struct {
	kind, link  uint32
	flags, size uint64
}

func (h *header) section(r io.ReaderAt, i uint64) (s sectionHeader, err error) {
	var b [64]byte
	size := 40
	if h.is64 {
		size = 64
	}
	at := h.offset + int64(i*h.entry)
	if at < 0 {
		return s, errHeader
	}
	if _, err := r.ReadAt(b[:size], at); err != nil {
		return s, fmt.Errorf("read section header: %w", err)
	}
	s.kind = h.order.Uint32(b[4:])
	if h.is64 {
		s.flags, s.size, s.link = h.order.Uint64(b[8:]), h.order.Uint64(b[32:]), h.order.Uint32(b[40:])
	} else {
		s.flags, s.size, s.link = uint64(h.order.Uint32(b[8:])), uint64(h.order.Uint32(b[20:])), h.order.Uint32(b[24:])
	}
	return s, nil
}

// errNoContents is returned for a section without contents in the file.
var errNoContents = errors.New("section has no contents")

// Section returns the contents of a section that is not compressed. path is used in error messages.
// It returns an *Error if the section has more than max bytes.
func Section(s *elf.Section, path string, max int64) ([]byte, error) {
	if s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, fmt.Errorf("read %s: %w", s.Name, errNoContents)
	}
	if s.FileSize > uint64(max) {
		return nil, &Error{fmt.Sprintf("section %s of %s", s.Name, path), max, "bytes"}
	}
	if _, err := s.ReadAt(make([]byte, 1), int64(s.FileSize)-1); err != nil && s.FileSize > 0 {
		// Checked before memory is allocated for a size that the file does not have.
		return nil, fmt.Errorf("read end of %s: %w", s.Name, err)
	}
	b := make([]byte, s.FileSize)
	if n, err := s.ReadAt(b, 0); err != nil && n < len(b) {
		return nil, fmt.Errorf("read %s: %w", s.Name, err)
	}
	return b, nil
}

// Decompressed is Section for a section that may be compressed. max applies to the decompressed size.
func Decompressed(s *elf.Section, path string, max int64) ([]byte, error) {
	if s.Type == elf.SHT_NOBITS {
		return nil, fmt.Errorf("read %s: %w", s.Name, errNoContents)
	}
	size := s.Size
	if strings.HasPrefix(s.Name, ".zdebug_") && s.Flags&elf.SHF_COMPRESSED == 0 {
		size = cmp.Or(zdebugSize(s), size)
	}
	if size > uint64(max) {
		return nil, &Error{fmt.Sprintf("section %s of %s", s.Name, path), max, "bytes"}
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(s.Open(), b); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.Name, err)
	}
	return b, nil
}

// zdebugSize returns the decompressed size according to the header of a .zdebug section: "ZLIB" and
// the size as eight bytes, big-endian. It returns 0 for any other header.
func zdebugSize(s *elf.Section) uint64 {
	var b [12]byte
	if _, err := s.ReadAt(b[:], 0); err != nil || string(b[:4]) != "ZLIB" {
		return 0
	}
	return binary.BigEndian.Uint64(b[4:])
}
