package stack

import (
	"encoding/binary"
	"fmt"
	"io"
)

// GoTable is the function table (pclntab) of a Go program, for packages that need other data of it
// than names.
type GoTable struct {
	// Data begins with the header of the table.
	Data []byte
	// Order is the byte order.
	Order binary.ByteOrder
	// Text is the address that addresses of functions are relative to.
	Text uint64
}

// ReadGoTable finds the function table in an ELF file of the given size. It returns nil if the file
// is not a Go program, or if the address of its functions is uncertain.
//
// The error is a [limit.Error] if the table is too large. path is used in errors.
func ReadGoTable(r io.ReaderAt, size int64, path string) (g *GoTable, err error) {
	defer func() {
		if p := recover(); p != nil {
			g, err = nil, fmt.Errorf("parse ELF file: %v", p)
		}
	}()
	m, err := openImage(r, size, path)
	if err != nil {
		return nil, err
	}
	data, vaddr, err := m.pclntab()
	t := parsePclntab(data, m.ByteOrder)
	if t == nil {
		return nil, err
	}
	t.vaddr = vaddr
	for _, text := range m.goText(t) {
		if m.isGoText(text, t) {
			return &GoTable{data, m.ByteOrder, text}, nil
		}
	}
	return nil, nil
}
