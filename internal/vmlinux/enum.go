package vmlinux

import (
	"bytes"
	"fmt"
	"path/filepath"
)

// EnumValue returns a named value of the kernel's enums, also of an enum without a name, which CO-RE
// relocations cannot refer to. The error is fs.ErrNotExist if the kernel has no BTF.
func EnumValue(name string) (uint32, error) {
	raw, free, err := open(filepath.Join(directory, "vmlinux"))
	if err != nil {
		return 0, fmt.Errorf("read kernel BTF: %w", err)
	}
	defer free()
	b, err := parse(raw)
	if err != nil {
		return 0, fmt.Errorf("read kernel BTF: %w", err)
	}
	value, err := b.enumValue(name)
	if err != nil {
		return 0, fmt.Errorf("find %s in kernel BTF: %w", name, err)
	}
	return value, nil
}

// enumValue returns the value of the first enumerator with this name.
func (b *blob) enumValue(name string) (uint32, error) {
	at := uint32(bytes.Index(b.strings, []byte("\x00"+name+"\x00")) + 1) // each string is there once
	for off := 0; at > 0 && off < len(b.types); {
		size, err := b.sizeAt(off)
		if err != nil {
			return 0, err
		}
		for m := off + headerSize; kind(b.types[off+7]&0x1f) == kindEnum && m < off+size; m += int(layouts[kindEnum].each) {
			if order.Uint32(b.types[m:]) == at {
				return order.Uint32(b.types[m+4:]), nil
			}
		}
		off += size
	}
	return 0, errNoValue
}
