package prove

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// A C program calls functions of the C library one after the other: the workload itself has no C library. It is
// written for each proof, so that its calls are known and no compiler is needed.

// cCall is a call of a function with at most four arguments: int, cText, cBytes, cSlot, cRoutine, cVar or cAddress.
type cCall struct {
	function string
	args     []any
}

type (
	cText  string // the address of this text
	cBytes []byte // the address of these bytes
	// cSlot is the address of an argument of a later call: so many calls later, and its number.
	cSlot struct{ calls, arg int }
	// cRoutine is the address of a function that returns 0.
	cRoutine struct{}
	// cResult is not an argument itself: the result of the call becomes an argument of a later call.
	cResult cSlot
	// cVar is the value of a variable, cAddress its address.
	cVar     int
	cAddress int
	// cStore is not an argument itself: the result of the call is stored in a variable.
	cStore int
)

const (
	cArgs       = 4
	cEntrySize  = 48 // function, arguments, address for the result
	cCodeBase   = 0x400000
	cDataBase   = 0x800000
	cPage       = 64 << 10 // the largest page size
	cScratch    = 64
	cVariables  = 8
	symbolSize  = 24
	relaSize    = 24
	dynamicSize = 16
)

// cPlatform is a C library.
type cPlatform struct{ loader, library string }

// cPlatforms are the C libraries of this architecture, glibc and musl.
func cPlatforms() []cPlatform {
	if runtime.GOARCH == "arm64" {
		return []cPlatform{{"/lib/ld-linux-aarch64.so.1", "libc.so.6"}, {"/lib/ld-musl-aarch64.so.1", "libc.so"}}
	}
	return []cPlatform{{"/lib64/ld-linux-x86-64.so.2", "libc.so.6"}, {"/lib/ld-musl-x86_64.so.1", "libc.so"}}
}

// cCode returns the code of the program, which makes the calls of the table, and the offset of the routine.
func cCode(table uint64) (code []byte, routine uint64) {
	le := binary.LittleEndian
	if runtime.GOARCH == "arm64" {
		for _, word := range []uint32{
			0xd2800013 | uint32(table&0xffff)<<5, // movz x19, the lower half of the table's address
			0xf2a00013 | uint32(table>>16)<<5,    // movk x19, the upper half, lsl 16
			0xf9400269,                           // ldr x9, [x19]
			0xb4000129,                           // cbz x9, to the exit
			0xa9408660,                           // ldp x0, x1, [x19, 8]
			0xa9418e62,                           // ldp x2, x3, [x19, 24]
			0xf9400129,                           // ldr x9, [x9]
			0xd63f0120,                           // blr x9
			0xf9401669,                           // ldr x9, [x19, 40]
			0xf9000120,                           // str x0, [x9]
			0x9100c273,                           // add x19, x19, 48
			0x17fffff7,                           // b to the ldr
			0xd2800000,                           // mov x0, 0
			0xd2800bc8,                           // mov x8, exit_group
			0xd4000001,                           // svc 0
			0xd2800000,                           // the routine: mov x0, 0
			0xd65f03c0,                           // ret
		} {
			code = le.AppendUint32(code, word)
		}
		return code, 0x3c
	}
	code = append(code, 0x48, 0x83, 0xe4, 0xf0, 0xbb) // and rsp, -16; mov ebx, the table's address
	code = le.AppendUint32(code, uint32(table))
	return append(code,
		0x48, 0x8b, 0x03, // mov rax, [rbx]
		0x48, 0x85, 0xc0, // test rax, rax
		0x74, 0x1f, // jz to the exit
		0x48, 0x8b, 0x7b, 0x08, // mov rdi, [rbx + 8]
		0x48, 0x8b, 0x73, 0x10, // mov rsi, [rbx + 16]
		0x48, 0x8b, 0x53, 0x18, // mov rdx, [rbx + 24]
		0x48, 0x8b, 0x4b, 0x20, // mov rcx, [rbx + 32]
		0xff, 0x10, // call [rax]
		0x48, 0x8b, 0x4b, 0x28, // mov rcx, [rbx + 40]
		0x48, 0x89, 0x01, // mov [rcx], rax
		0x48, 0x83, 0xc3, 0x30, // add rbx, 48
		0xeb, 0xd9, // jmp to the first mov
		0x31, 0xff, // xor edi, edi
		0xb8, 231, 0, 0, 0, // mov eax, exit_group
		0x0f, 0x05, // syscall
		0x31, 0xc0, // the routine: xor eax, eax
		0xc3, // ret
	), 0x39
}

// cImage is the file of a program: what is mapped executable, and what is mapped writable.
type cImage struct {
	functions  []string
	code, data []byte
	table      uint64
	slots      uint64 // addresses of the functions
	scratch    uint64 // a place for results that nobody uses
	variables  uint64
}

func (m *cImage) put(to *[]byte, base uint64, content ...[]byte) (address uint64) {
	*to = append(*to, make([]byte, -len(*to)&15)...)
	address = base + uint64(len(*to))
	for _, b := range content {
		*to = append(*to, b...)
	}
	return address
}

func (m *cImage) putData(content ...[]byte) uint64 { return m.put(&m.data, cDataBase, content...) }
func (m *cImage) putCode(content ...[]byte) uint64 { return m.put(&m.code, cCodeBase, content...) }

func words(all ...uint64) (b []byte) {
	for _, v := range all {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// withCopies adds calls that copy variables to the arguments of a call.
func withCopies(calls []cCall) (all []cCall) {
	const size = 8
	for _, c := range calls {
		var copies []cCall
		args := slices.Clone(c.args)
		for i, arg := range args {
			if v, ok := arg.(cVar); ok {
				copies = append(copies, cCall{"memcpy", []any{cSlot{0, i}, cAddress(v), size}})
				args[i] = 0
			}
		}
		for i := range copies {
			slot := copies[i].args[0].(cSlot)
			copies[i].args[0] = cSlot{len(copies) - i, slot.arg}
		}
		all = append(append(all, copies...), cCall{c.function, args})
	}
	return all
}

// writeC writes a program that makes these calls, and returns the address of its routine. libraries are those that
// it needs besides the C library.
func writeC(path string, platform cPlatform, libraries []string, calls []cCall) (routine uint64, err error) {
	const headers = 64 + 56*4 // of the file and of its segments
	m := &cImage{code: make([]byte, headers)}
	for _, c := range calls {
		if !slices.Contains(m.functions, c.function) {
			m.functions = append(m.functions, c.function)
		}
	}
	m.slots = m.putData(make([]byte, 8*len(m.functions)))
	m.scratch = m.putData(make([]byte, cScratch))
	m.variables = m.putData(make([]byte, 8*cVariables))
	m.table = m.putData(make([]byte, cEntrySize*(len(calls)+1)))
	code, offset := cCode(m.table)
	entry := m.putCode(code)
	routine = entry + offset
	for i, c := range calls {
		m.fill(i, &c, routine)
	}
	loader := m.putCode([]byte(platform.loader), []byte{0})
	dynamic, size := m.dynamic(append([]string{platform.library}, libraries...))
	return routine, os.WriteFile(path, m.file(entry, loader, uint64(len(platform.loader)+1), dynamic, size), 0o700)
}

// fill sets an entry of the table.
func (m *cImage) fill(i int, c *cCall, routine uint64) {
	at := func(call, arg int) uint64 { return m.table + uint64(cEntrySize*call+8*arg) }
	set := func(arg int, v uint64) {
		binary.LittleEndian.PutUint64(m.data[at(i, arg)-cDataBase:], v)
	}
	set(0, m.slots+uint64(8*slices.Index(m.functions, c.function)))
	set(1+cArgs, m.scratch)
	n := 1
	for _, arg := range c.args {
		var v uint64
		switch a := arg.(type) {
		case cResult:
			set(1+cArgs, at(i+a.calls, 1+a.arg))
			continue
		case cStore:
			set(1+cArgs, m.variables+8*uint64(a))
			continue
		case cAddress:
			v = m.variables + 8*uint64(a)
		case int:
			v = uint64(a)
		case cText:
			v = m.putData([]byte(a), []byte{0})
		case cBytes:
			v = m.putData(a)
		case cSlot:
			v = at(i+a.calls, 1+a.arg)
		case cRoutine:
			v = routine
		}
		set(n, v)
		n++
	}
}

// dynamic adds what the loader needs, and returns the address and the size of the dynamic section.
func (m *cImage) dynamic(libraries []string) (address, size uint64) {
	kind := uint64(elf.R_X86_64_GLOB_DAT)
	if runtime.GOARCH == "arm64" {
		kind = uint64(elf.R_AARCH64_GLOB_DAT)
	}
	names, symbols := []byte{0}, make([]byte, symbolSize)
	var relocations, section []byte
	for _, library := range libraries {
		section = append(section, words(uint64(elf.DT_NEEDED), uint64(len(names)))...)
		names = append(append(names, library...), 0)
	}
	for i, f := range m.functions {
		symbols = binary.LittleEndian.AppendUint32(symbols, uint32(len(names)))
		symbols = append(symbols, elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), 0, 0, 0)
		symbols = append(symbols, words(0, 0)...)
		names = append(append(names, f...), 0)
		relocations = append(relocations, words(m.slots+uint64(8*i), uint64(i+1)<<32|kind, 0)...)
	}
	chain := uint32(len(m.functions) + 1)
	var hash []byte // without symbols that others could use
	for _, v := range append([]uint32{1, chain, 0}, make([]uint32, chain)...) {
		hash = binary.LittleEndian.AppendUint32(hash, v)
	}
	section = append(section, words(
		uint64(elf.DT_STRTAB), m.putCode(names), uint64(elf.DT_STRSZ), uint64(len(names)),
		uint64(elf.DT_SYMTAB), m.putCode(symbols), uint64(elf.DT_SYMENT), symbolSize,
		uint64(elf.DT_HASH), m.putCode(hash),
		uint64(elf.DT_RELA), m.putCode(relocations), uint64(elf.DT_RELASZ), uint64(len(relocations)), uint64(elf.DT_RELAENT), relaSize,
		uint64(elf.DT_FLAGS), uint64(elf.DF_BIND_NOW),
		uint64(elf.DT_DEBUG), 0,
		uint64(elf.DT_NULL), 0,
	)...)
	return m.putData(section), uint64(len(section))
}

// file returns the file: headers and code, and on another page the data.
func (m *cImage) file(entry, loader, loaderSize, dynamic, dynamicSize uint64) []byte {
	offset := uint64(len(m.code)+cPage-1) &^ (cPage - 1)
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	segment := func(kind elf.ProgType, flags elf.ProgFlag, offset, address, size, align uint64) elf.Prog64 {
		return elf.Prog64{Type: uint32(kind), Flags: uint32(flags), Off: offset, Vaddr: address, Paddr: address, Filesz: size, Memsz: size, Align: align}
	}
	segments := []elf.Prog64{
		segment(elf.PT_INTERP, elf.PF_R, loader-cCodeBase, loader, loaderSize, 1),
		segment(elf.PT_LOAD, elf.PF_R|elf.PF_X, 0, cCodeBase, uint64(len(m.code)), cPage),
		segment(elf.PT_LOAD, elf.PF_R|elf.PF_W, offset, cDataBase, uint64(len(m.data)), cPage),
		segment(elf.PT_DYNAMIC, elf.PF_R|elf.PF_W, offset+dynamic-cDataBase, dynamic, dynamicSize, 8),
	}
	head := elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Entry: entry, Phoff: 64,
		Ehsize: 64, Phentsize: 56, Phnum: uint16(len(segments)), Shentsize: 64,
	}
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, head) // a buffer accepts everything
	_ = binary.Write(&b, binary.LittleEndian, segments)
	out := append(make([]byte, 0, offset+uint64(len(m.data))), m.code...)
	copy(out, b.Bytes())
	return append(append(out, make([]byte, int(offset)-len(out))...), m.data...)
}

// cProcess is a process of a C program.
type cProcess struct {
	pid     int
	comm    string
	routine uint64 // address
	output  []byte // of the calls
	in      io.Writer
	out     io.Reader
}

// startC starts a C program that is loaded and waits before it makes the calls. libraries are those that it needs
// besides the C library.
func (w *worker) startC(libraries []string, calls []cCall) (*cProcess, error) {
	all := cPlatforms()
	at := slices.IndexFunc(all, func(p cPlatform) bool { _, err := os.Stat(p.loader); return err == nil })
	if at < 0 {
		return nil, fmt.Errorf("no C library is installed: no %s", all[0].loader)
	}
	one := cBytes{0}
	signal, wait := cCall{"write", []any{1, one, 1}}, cCall{"read", []any{0, one, 1}}
	calls = slices.Concat([]cCall{signal, wait}, withCopies(calls), []cCall{signal, wait})
	c := &cProcess{comm: programName(w)}
	path := w.path(c.comm)
	var err error
	if c.routine, err = writeC(path, all[at], libraries, calls); err != nil {
		return nil, fmt.Errorf("write program: %w", err)
	}
	cmd := exec.Command(path) // its messages, such as that of the loader, are not shown
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		return nil, fmt.Errorf("start the C program: %w", err)
	}
	c.pid, c.in, c.out = cmd.Process.Pid, in, out
	w.later(func() { in.Close(); _ = cmd.Wait() })
	w.facts["child"] = fmt.Sprint(c.pid)
	if err := c.await(); err != nil {
		return nil, fmt.Errorf("%w; it needs %s", err, strings.Join(append(libraries, all[at].library), " and "))
	}
	return c, nil
}

func (c *cProcess) await() error {
	if _, err := io.ReadFull(c.out, make([]byte, 1)); err != nil {
		return fmt.Errorf("the C program has ended: %w", err)
	}
	return nil
}

// run lets the program make the calls, which write so many bytes to its output.
func (c *cProcess) run(bytes int) (s span, err error) {
	c.output = make([]byte, bytes)
	s = during(func() {
		_, errWrite := c.in.Write([]byte{0})
		_, errRead := io.ReadFull(c.out, c.output)
		err = errors.Join(errWrite, errRead, c.await())
	})
	return s, err
}
