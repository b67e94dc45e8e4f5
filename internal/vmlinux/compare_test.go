package vmlinux

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// elfWith returns an ELF file with one section .BTF.
func elfWith(t *testing.T, data []byte) []byte {
	t.Helper()
	const names = "\x00.shstrtab\x00.BTF\x00"
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Shoff: 64, Ehsize: 64, Shentsize: 64, Shnum: 3, Shstrndx: 1,
	}
	sections := []elf.Section64{
		{},
		{Name: 1, Type: uint32(elf.SHT_STRTAB), Off: 64 + 3*64, Size: uint64(len(names))},
		{Name: 11, Type: uint32(elf.SHT_PROGBITS), Off: 64 + 3*64 + uint64(len(names)), Size: uint64(len(data))},
	}
	var b bytes.Buffer
	for _, part := range []any{head, sections, []byte(names), data} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestIsRunning checks that the running kernel's BTF is recognized as a raw file and as a section of
// an ELF file, and that other BTF is not.
func TestIsRunning(t *testing.T) {
	own, err := os.ReadFile(filepath.Join(directory, "vmlinux"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(own)
	other[len(other)-2] ^= 1
	for _, tt := range []struct {
		name string
		data []byte
		want bool
	}{
		{"own", own, true},
		{"own in ELF", elfWith(t, own), true},
		{"other", other, false},
		{"other in ELF", elfWith(t, other), false},
		{"shorter", own[:len(own)-1], false},
		{"longer", append(bytes.Clone(own), 0), false},
		{"empty", nil, false},
	} {
		path := filepath.Join(t.TempDir(), "btf")
		if err := os.WriteFile(path, tt.data, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := IsRunning(path); got != tt.want || err != nil {
			t.Errorf("%s: %t, %v, want %t", tt.name, got, err, tt.want)
		}
	}
	if _, err := IsRunning("/no/such/file"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
}
