package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// errExtInfo is returned for a section .BTF.ext that is not as the compiler writes it.
var errExtInfo = errors.New("invalid section .BTF.ext")

// hideExtInfo removes what .BTF.ext of an object has about sections, so that the library does not decode the
// types that only these refer to. That is a tenth (biolatency) to a quarter (opensnoop) of the time.
func hideExtInfo(object []byte, f *elf.File, hidden map[string]bool) error {
	contents := func(name string) []byte {
		s := f.Section(name)
		if s == nil || s.Offset+s.Size > uint64(len(object)) {
			return nil
		}
		return object[s.Offset:][:s.Size]
	}
	const headerSizeAt, stringsAt = 4, 16 // of both sections, and of .BTF
	btf, ext := contents(".BTF"), contents(".BTF.ext")
	if len(btf) < stringsAt+8 || len(ext) < headerSizeAt+4 {
		return errExtInfo
	}
	order := binary.LittleEndian
	begin := int(order.Uint32(btf[headerSizeAt:]) + order.Uint32(btf[stringsAt:]))
	size := int(order.Uint32(ext[headerSizeAt:]))
	if begin > len(btf) || size > len(ext) {
		return errExtInfo
	}
	// The header has the offset and the length of three parts: functions, lines, and relocations.
	for at := headerSizeAt + 4; at+8 <= size; at += 8 {
		offset, length := int(order.Uint32(ext[at:])), int(order.Uint32(ext[at+4:]))
		if size+offset+length > len(ext) {
			return errExtInfo
		}
		kept, err := keepExtInfo(ext[size+offset:][:length], btf[begin:], hidden)
		if err != nil {
			return err
		}
		order.PutUint32(ext[at+4:], uint32(kept))
	}
	return nil
}

// keepExtInfo moves what is not about hidden sections to the beginning of a part, and returns the length of that.
// A part has the size of a record, and for each section its name, the number of its records, and the records.
func keepExtInfo(part, strings []byte, hidden map[string]bool) (int, error) {
	if len(part) < 4 {
		return len(part), nil
	}
	order := binary.LittleEndian
	kept := part[:4]
	for rest := part[4:]; len(rest) > 0; {
		if len(rest) < 8 {
			return 0, errExtInfo
		}
		name, length := int(order.Uint32(rest)), 8+int(order.Uint32(rest[4:]))*int(order.Uint32(part))
		if name > len(strings) || length > len(rest) {
			return 0, fmt.Errorf("%w: a section with %d bytes", errExtInfo, length)
		}
		section, _, _ := bytes.Cut(strings[name:], []byte{0})
		if !hidden[string(section)] {
			kept = append(kept, rest[:length]...)
		}
		rest = rest[length:]
	}
	return len(kept), nil
}
