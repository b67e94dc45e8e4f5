// Package code decodes the instructions of programs and libraries, to find the instructions by
// which functions return and the implementations that resolvers select from.
package code

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"github.com/corescope/corescope/internal/unwind"
)

// Kind is the effect of an instruction on the flow of control.
type Kind uint8

const (
	// Plain continues with the next instruction.
	Plain Kind = iota
	// Call continues with the next instruction when the called function returns.
	Call
	// Return ends a call.
	Return
	// Jump continues at Target, Branch possibly.
	Jump
	Branch
	// JumpIndirect continues at an address that is not in the instruction.
	JumpIndirect
	// Stop does not continue.
	Stop
	// Syscall enters the kernel, and continues with the next instruction.
	Syscall
	// Unknown can continue anywhere.
	Unknown
)

// Register is the number of a register, 0 for none: that of the architecture plus one.
type Register uint8

// Instruction is one instruction.
type Instruction struct {
	Size   int
	Kind   Kind
	Target uint64
	// Within reports that an indirect jump stays in its function, like that of a switch.
	Within bool
	// Reference is an address that the instruction puts into a register, or 0.
	Reference uint64
	// Sum is the register that the instruction adds another register to; By is the register that
	// has the target of an indirect jump.
	Sum, By Register
	// Refused reports that the kernel attaches no uprobe to the instruction.
	Refused bool
}

// ErrHidden is returned if not all return instructions of a function can be determined.
var ErrHidden = errors.New("its return instructions cannot all be determined")

// ErrPart is returned for code that is no function: a part of one that the compiler has placed elsewhere.
var ErrPart = errors.New("it is a part of another function")

// Text is the code of a file.
type Text struct {
	file      *elf.File
	segments  []*elf.Prog
	plts      []unwind.Range
	frames    *unwind.Frames
	isARM64   bool
	decode    func(text []byte, pc uint64) (Instruction, bool)
	crossings []crossing
	swept     bool
	left      int  // bytes of code that may still be decoded
	exceeded  bool // crossings are missing
	slots     map[uint64]slot
}

// New reads the segments and the unwind tables of a file. debug/elf can panic on crafted files: see
// [binary.File.Parse]. The Text is valid as long as the file.
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
	return nil, fmt.Errorf("%w: address %#x is not in a code segment", ErrHidden, r.Start)
}
