package probe

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"
)

// symbolBytes is the size of a symbol: KSYM_SYMBOL_LEN is 512 bytes for the name, and the offset, the
// size and the module.
const symbolBytes = 640

// kernelSymbols asks the kernel for the symbols of its addresses, with a program that calls
// bpf_snprintf. Unlike /proc/kallsyms, which lists 100,000 symbols, the kernel finds one by bisection.
type kernelSymbols struct {
	program        *ebpf.Program
	format, symbol *ebpf.Map
}

// newKernelSymbols loads the program. It needs a kernel with programs of type syscall, from 5.14 on
// (79a7f8bdb159).
func newKernelSymbols() (s *kernelSymbols, err error) {
	s = &kernelSymbols{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	const format = "%pS\x00"
	if s.format, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "format", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(len(format)), MaxEntries: 1,
		Flags:    unix.BPF_F_RDONLY_PROG,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: []byte(format)}},
	}); err != nil {
		return s, fmt.Errorf("create map for the format: %w", err)
	}
	if err = s.format.Freeze(); err != nil { // bpf_snprintf needs a constant
		return s, fmt.Errorf("freeze map of the format: %w", err)
	}
	if s.symbol, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "symbol", Type: ebpf.Array, KeySize: 4, ValueSize: symbolBytes, MaxEntries: 1,
	}); err != nil {
		return s, fmt.Errorf("create map for symbols: %w", err)
	}
	s.program, err = ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "kernel_symbol", Type: ebpf.Syscall, License: "GPL", Flags: unix.BPF_F_SLEEPABLE, // as this type requires
		Instructions: asm.Instructions{ // bpf_snprintf(symbol, symbolBytes, format, &address, sizeof(address))
			asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord),
			asm.StoreMem(asm.RFP, -8, asm.R1, asm.DWord),
			asm.LoadMapValue(asm.R1, s.symbol.FD(), 0),
			asm.Mov.Imm(asm.R2, symbolBytes),
			asm.LoadMapValue(asm.R3, s.format.FD(), 0),
			asm.Mov.Reg(asm.R4, asm.RFP),
			asm.Add.Imm(asm.R4, -8),
			asm.Mov.Imm(asm.R5, 8),
			asm.FnSnprintf.Call(),
			asm.Return(),
		},
	})
	if err != nil {
		return s, fmt.Errorf("load program: %w", err)
	}
	// Before its first run of a program the library loads another one, which needs capabilities that
	// tools have dropped when they look up symbols.
	_, err = s.lookUp(0)
	return s, err
}

// lookUp returns the symbol of an address as %pS prints it.
func (s *kernelSymbols) lookUp(addr uint64) (string, error) {
	if _, err := s.program.Run(&ebpf.RunOptions{Context: addr}); err != nil {
		return "", fmt.Errorf("run program for symbols: %w", err)
	}
	var text [symbolBytes]byte
	if err := s.symbol.Lookup(uint32(0), &text); err != nil {
		return "", fmt.Errorf("read symbol: %w", err)
	}
	symbol, _, _ := bytes.Cut(text[:], []byte{0})
	return string(symbol), nil
}

// Close unloads the program.
func (s *kernelSymbols) Close() error {
	return errors.Join(s.program.Close(), s.format.Close(), s.symbol.Close())
}

// KernelSymbols returns a function that returns the symbol of a kernel address in the format of
// [stack.Kernel.Ask]; nil if the kernel cannot be asked, before Linux 5.14, or too few descriptors are
// left. It needs CAP_BPF and CAP_PERFMON, the function needs neither. The function must not be called by
// several goroutines at the same time.
func (o *Objects) KernelSymbols() func(addr uint64) (string, error) {
	const descriptors = 3
	if o.symbols == nil {
		if o.OptionalDescriptors < descriptors {
			return nil
		}
		o.OptionalDescriptors -= descriptors
		symbols, err := newKernelSymbols()
		if err != nil {
			return nil
		}
		o.symbols = symbols
	}
	return o.symbols.lookUp
}
