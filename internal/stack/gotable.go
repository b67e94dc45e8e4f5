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

// WithGoTable calls use with the function table of a Go program in an ELF file of the given size. It
// does not if the file is not a Go program, or if the address of its functions is uncertain. Data is
// valid until use returns, and is what [limit.WithSection] passes: use must not hold locks.
//
// The error is a [limit.Error] if the table is too large. path is used in errors.
func WithGoTable(r io.ReaderAt, size int64, path string, use func(*GoTable)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parse ELF file: %v", p)
		}
	}()
	m, err := openImage(r, size, path)
	if err != nil {
		return err
	}
	return m.withGoTable(func(t *goTable, text uint64) { use(&GoTable{t.data, m.ByteOrder, text}) })
}
