package tooltest

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// loadAddress is the load address of an I386 program: headers, code, then data.
const loadAddress = 0x8048000

// I386 writes a 32-bit executable with the code and data, and returns its path. code gets the
// address of the data. I386 first runs a program that only exits, and skips the test if that fails.
func I386(t testing.TB, data []byte, code func(data uint32) []byte) string {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("needs an x86 machine")
	}
	exit := write386(t, "exit", nil, func(uint32) []byte { return Exit386() })
	if err := exec.Command(exit).Run(); err != nil {
		t.Skipf("32-bit programs are not supported by this kernel: %v", err)
	}
	return write386(t, "prog386", data, code)
}

// Call386 returns the code of a system call with up to three arguments, by int 0x80.
func Call386(nr uint32, args ...uint32) []byte {
	code := binary.LittleEndian.AppendUint32([]byte{0xb8}, nr) // mov eax, nr
	for i, op := range []byte{0xbb, 0xb9, 0xba} {              // mov ebx, ecx, edx
		if i < len(args) {
			code = binary.LittleEndian.AppendUint32(append(code, op), args[i])
		}
	}
	return append(code, 0xcd, 0x80)
}

// Exit386 returns the code of exit(0).
func Exit386() []byte { return Call386(1, 0) }

func write386(t testing.TB, name string, data []byte, code func(data uint32) []byte) string {
	t.Helper()
	const headers = 52 + 32
	text := code(0)
	text = code(loadAddress + headers + uint32(len(text)))
	size := uint32(headers + len(text) + len(data))
	var b bytes.Buffer
	b.Write([]byte{0x7f, 'E', 'L', 'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	for _, field := range []any{
		uint16(2), uint16(3), uint32(1), uint32(loadAddress + headers), // ET_EXEC, EM_386
		uint32(52), uint32(0), uint32(0), uint16(52), uint16(32), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(0), uint32(loadAddress), uint32(loadAddress), size, size, uint32(7), uint32(0x1000),
	} {
		binary.Write(&b, binary.LittleEndian, field)
	}
	b.Write(text)
	b.Write(data)
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
