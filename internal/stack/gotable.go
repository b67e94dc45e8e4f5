package stack

import (
	"encoding/binary"
	"fmt"
	"io"
)

// GoTable is the table of functions that a Go program carries, for readers of what else
// is in there than names.
type GoTable struct {
	// Data is the table from its header on.
	Data []byte
	// Order is that of its numbers.
	Order binary.ByteOrder
	// Text is the address that those of functions are counted from.
	Text uint64
}

// ReadGoTable finds the table in an ELF file of that size; nil if it is no Go program, or
// if it cannot be told for sure where in memory its functions lie.
//
// Its error is a [limit.Error] if the table is too large. path is for errors.
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
