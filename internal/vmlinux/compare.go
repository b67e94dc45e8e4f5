package vmlinux

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// IsRunning reports whether a file has the same BTF as the running kernel. The file is raw BTF or an
// ELF file with a section .BTF, such as vmlinux. The error is fs.ErrNotExist if the kernel has no BTF.
func IsRunning(path string) (bool, error) {
	own, free, err := open(filepath.Join(directory, "vmlinux"))
	if err != nil {
		return false, fmt.Errorf("read kernel BTF: %w", err)
	}
	defer free()
	same, err := equal(path, own)
	if err != nil {
		return false, fmt.Errorf("compare BTF: %w", err)
	}
	return same, nil
}

// equal reports whether the BTF in a file is equal to these bytes.
func equal(path string, want []byte) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	r, err := section(f)
	if err != nil {
		return false, err
	}
	got, err := io.ReadAll(io.LimitReader(r, int64(len(want))+1))
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return bytes.Equal(got, want), nil
}

// section returns the BTF in a file: the section .BTF of an ELF file, otherwise the whole file.
func section(f *os.File) (io.Reader, error) {
	file, err := elf.NewFile(f)
	var notELF *elf.FormatError
	if errors.As(err, &notELF) || errors.Is(err, io.EOF) {
		return io.NewSectionReader(f, 0, 1<<62), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	s := file.Section(".BTF")
	if s == nil {
		return bytes.NewReader(nil), nil
	}
	return s.Open(), nil
}
