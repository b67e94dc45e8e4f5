// Package code decodes the instructions of programs and libraries. It finds the return instructions
// of functions, and the implementations that an IFUNC resolver can select.
package code

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"github.com/corescope/corescope/internal/unwind"
)

// Kind is the effect of an instruction on the control flow.
type Kind uint8

const (
	// Plain continues with the next instruction.
	Plain Kind = iota
	// Call continues with the next instruction when the called function returns.
	Call
	// Return ends a call.
	Return
	// Jump continues at Target. Branch continues at Target or with the next instruction.
	Jump
	Branch
	// JumpIndirect continues at an address in a register or in memory.
	JumpIndirect
	// Stop ends the thread or the process.
	Stop
	// Syscall enters the kernel and continues with the next instruction.
	Syscall
	// Unknown is an instruction with an unknown effect.
	Unknown
)

// Register is the number of a register of the architecture plus one, or 0 for none.
type Register uint8

// Instruction is a decoded instruction.
type Instruction struct {
	Size   int
	Kind   Kind
	Target uint64
	// Within is set if an indirect jump stays in its function, as for a switch statement.
	Within bool
	// Reference is an address that the instruction loads into a register, or 0.
	Reference uint64
	// Sum is the register that an addition of two registers writes to. By is the register that
	// contains the target of an indirect jump.
	Sum, By Register
	// Refused is set if the kernel refuses to attach a uprobe to the instruction.
	Refused bool
}

// ErrHidden is returned if the return instructions of a function cannot all be determined.
var ErrHidden = errors.New("cannot determine all return instructions")

// ErrPart is returned for code that is not a function, but a part of one that the compiler placed
// elsewhere.
var ErrPart = errors.New("not a function, but a part of one")

// Range is a range of addresses in a file.
type Range = unwind.Range

// Text is the code of a file.
type Text struct {
	file      *elf.File
	segments  []*elf.Prog
	plts      []unwind.Range
	frames    *unwind.Frames
	functions []unwind.Range // without an entry in the unwind table, by address
	isARM64   bool
	decode    func(text []byte, pc uint64) (Instruction, bool)
	crossings []crossing
	swept     bool
	left      int  // bytes of code that may still be decoded (limit.Code)
	exceeded  bool // left was exceeded, so crossings is incomplete
	slots     map[uint64]slot
}

// New reads the segments and the unwind table of a file, which must stay open. debug/elf can panic
// on malformed files: see [binary.File.Parse].
func New(f *elf.File) (*Text, error) {
	frames, err := unwind.ReadFrames(f)
	if err != nil {
		return nil, err
	}
	t := &Text{file: f, frames: frames, isARM64: f.Machine == elf.EM_AARCH64, decode: decodeARM64}
	if !t.isARM64 {
		t.decode = x86{newX86Tables()}.decode
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			t.segments = append(t.segments, p)
		}
	}
	for _, s := range f.Sections {
		if name := s.Name; name == ".plt" || name == ".plt.sec" || name == ".plt.got" || name == ".iplt" {
			t.plts = append(t.plts, unwind.Range{Start: s.Addr, End: s.Addr + s.Size})
		}
	}
	return t, nil
}

func (t *Text) read(r unwind.Range) ([]byte, error) {
	for _, p := range t.segments {
		if r.Start >= p.Vaddr && r.End <= p.Vaddr+p.Filesz && r.End >= r.Start {
			b := make([]byte, r.End-r.Start)
			_, err := p.ReadAt(b, int64(r.Start-p.Vaddr))
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return b, err
		}
	}
	return nil, fmt.Errorf("%w: address %#x is not in an executable segment", ErrHidden, r.Start)
}

// Begins reports whether an instruction begins at an offset of a function, whose code read returns: up to
// 16 bytes at an offset. A uprobe within an instruction changes what the program does.
func Begins(machine elf.Machine, offset uint64, read func(offset uint64) ([]byte, error)) (bool, error) {
	if machine == elf.EM_AARCH64 {
		return offset%4 == 0, nil
	}
	decode := x86{newX86Tables()}.decode
	at := uint64(0)
	for at < offset {
		text, err := read(at)
		if err != nil {
			return false, err
		}
		in, ok := decode(text, at)
		if !ok || in.Kind == Unknown || in.Size <= 0 {
			return false, nil
		}
		at += uint64(in.Size)
	}
	return at == offset, nil
}
