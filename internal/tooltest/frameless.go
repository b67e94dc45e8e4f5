package tooltest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// FramelessChain returns the functions in the stack of a Frameless process, innermost first.
func FramelessChain() []string {
	return []string{"frameless_leaf", "frameless_middle", "frameless_outer", "_start"}
}

// FramelessProgram writes a program whose functions do not use frame pointers, so only .eh_frame
// describes their frames. The innermost function spins, sleeps, and opens a path at address 0,
// which fails, in an endless loop. No compiler is necessary: the file is generated here.
func FramelessProgram(t testing.TB) (path string) {
	t.Helper()
	functions, common, data := framelessProgram()
	return writeProgram(t, "frameless", framelessFile(functions, common, data))
}

// WildFrames runs a program until the test ends. It uses the frame pointer register for data: a
// pointer to a linked list on the stack, in which unwinding by frame pointers finds stack addresses
// instead of return addresses. It has no .eh_frame, and a single function, WildFunction.
func WildFrames(t testing.TB) *exec.Cmd {
	t.Helper()
	return startProgram(t, writeProgram(t, "wild", framelessFile([]framelessFunction{{name: WildFunction, code: wildCode()}}, nil, nil)))
}

// WildFunction is the only function of WildFrames.
const WildFunction = "wild_spin"

// Assembly runs a program until the test ends. It spins in a function without unwind information,
// AssemblyChain()[0], that uses the frame pointer register for data. The frame of this function
// contains stale return addresses of earlier calls.
func Assembly(t testing.TB) *exec.Cmd {
	t.Helper()
	functions, common := assemblyProgram()
	if functions == nil {
		t.Skipf("the stack is not searched for return addresses on %s", runtime.GOARCH)
	}
	return startProgram(t, writeProgram(t, "assembly", framelessFile(functions, common, nil)))
}

// AssemblyChain returns the functions in the stack of an Assembly process, innermost first.
func AssemblyChain() []string { return []string{"assembly_spin", "assembly_outer", "_start"} }

func writeProgram(t testing.TB, name string, file []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, file, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Frameless runs FramelessProgram until the test ends.
func Frameless(t testing.TB) *exec.Cmd {
	t.Helper()
	return startProgram(t, FramelessProgram(t))
}

// WaitingProgram starts a shell process that executes the program at path when start is called, in
// the same process. The process is killed when the test ends.
func WaitingProgram(t testing.TB, path string) (cmd *exec.Cmd, start func()) {
	t.Helper()
	cmd = exec.Command("sh", "-c", `read go; while [ ${#i} -lt 4000 ]; do i=$i.; done; exec "$0"`, path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, cmd)
	return cmd, func() { in.Close() }
}

// startProgram runs the program at path until the test ends.
func startProgram(t testing.TB, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path)
	runUntilEnd(t, cmd)
	return cmd
}

func runUntilEnd(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// framelessFunction is the code of a function and its call frame instructions (DWARF).
type framelessFunction struct {
	name   string
	code   []byte
	frames []byte
	isBare bool // it has no FDE in .eh_frame
}

// Load address of the program, and file offset of its code.
const (
	framelessBase = 0x400000
	framelessText = 0x1000
)

// framelessFile returns an ELF executable with one segment. common is the body of the CIE; without
// it the file has no .eh_frame.
func framelessFile(functions []framelessFunction, common, data []byte) []byte {
	names, symbols := []byte{0}, []elf.Sym64{{}}
	var code []byte
	frames := framelessEntry(0, common)
	vaddr := func(at int) uint64 { return framelessBase + framelessText + uint64(at) }
	size := len(data)
	for _, f := range functions {
		size += len(f.code)
	}
	for _, f := range functions {
		symbols = append(symbols, elf.Sym64{
			Name: uint32(len(names)), Info: byte(elf.STB_GLOBAL)<<4 | byte(elf.STT_FUNC), Shndx: 1,
			Value: vaddr(len(code)), Size: uint64(len(f.code)),
		})
		names = append(append(names, f.name...), 0)
		// The address is relative to its own position, which is after length and CIE pointer.
		distance := int32(int64(vaddr(len(code))) - int64(vaddr(size+len(frames)+8)))
		body := binary.LittleEndian.AppendUint32(nil, uint32(distance))
		body = append(binary.LittleEndian.AppendUint32(body, uint32(len(f.code))), 0)
		if !f.isBare {
			frames = append(frames, framelessEntry(uint32(len(frames)+4), append(body, f.frames...))...)
		}
		code = append(code, f.code...)
	}
	code = append(code, data...)
	if common == nil {
		frames = nil
	}
	return framelessELF(append(code, frames...), len(code), symbols, names)
}

// framelessEntry encodes a record of .eh_frame: a CIE, with id 0, or an FDE.
func framelessEntry(id uint32, body []byte) []byte {
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)+4))
	return append(binary.LittleEndian.AppendUint32(b, id), body...)
}

func framelessELF(text []byte, codeSize int, symbols []elf.Sym64, names []byte) []byte {
	const sectionNames = "\x00.text\x00.eh_frame\x00.symtab\x00.strtab\x00.shstrtab\x00"
	var symtab bytes.Buffer
	_ = binary.Write(&symtab, binary.LittleEndian, symbols)
	symtabAt := uint64(framelessText + len(text))
	section := func(name uint32, kind elf.SectionType, flags elf.SectionFlag, offset uint64, size int, link, entry uint64) elf.Section64 {
		s := elf.Section64{Name: name, Type: uint32(kind), Flags: uint64(flags), Off: offset, Size: uint64(size), Link: uint32(link), Entsize: entry}
		if flags&elf.SHF_ALLOC != 0 {
			s.Addr = framelessBase + offset
		}
		return s
	}
	nameAt := func(name string) uint32 {
		return uint32(bytes.Index([]byte(sectionNames), []byte("\x00"+name+"\x00")) + 1)
	}
	stringsAt := symtabAt + uint64(symtab.Len())
	sections := []elf.Section64{
		{},
		section(nameAt(".text"), elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, framelessText, codeSize, 0, 0),
		section(nameAt(".eh_frame"), elf.SHT_PROGBITS, elf.SHF_ALLOC, framelessText+uint64(codeSize), len(text)-codeSize, 0, 0),
		section(nameAt(".symtab"), elf.SHT_SYMTAB, 0, symtabAt, symtab.Len(), 4, elf.Sym64Size),
		section(nameAt(".strtab"), elf.SHT_STRTAB, 0, stringsAt, len(names), 0, 0),
		section(nameAt(".shstrtab"), elf.SHT_STRTAB, 0, stringsAt+uint64(len(names)), len(sectionNames), 0, 0),
	}
	sectionsAt := stringsAt + uint64(len(names)+len(sectionNames))
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(framelessMachine), Version: uint32(elf.EV_CURRENT),
		Entry: framelessBase + framelessText, Phoff: 64, Shoff: sectionsAt,
		Ehsize: 64, Phentsize: 56, Phnum: 1, Shentsize: 64, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
	})
	_ = binary.Write(&b, binary.LittleEndian, elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: framelessBase, Paddr: framelessBase,
		Filesz: symtabAt, Memsz: symtabAt, Align: 64 << 10,
	})
	b.Write(make([]byte, framelessText-b.Len()))
	b.Write(text)
	b.Write(symtab.Bytes())
	b.Write(names)
	b.WriteString(sectionNames)
	_ = binary.Write(&b, binary.LittleEndian, sections)
	return b.Bytes()
}
