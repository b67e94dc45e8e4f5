package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// errNoLog is returned if the kernel rejects a program with EPERM before the verifier starts.
var errNoLog = errors.New("rejected before verification")

// loadByTypeID loads a program that is attached by a BTF ID. The library would search for the ID in
// all types of the kernel. After an error other than errNoLog, the caller loads the program with
// the library, whose error is more detailed.
func loadByTypeID(spec *ebpf.ProgramSpec, target btf.TypeID, kernel *Kernel, maps map[string]*ebpf.Map) (*ebpf.Program, error) {
	insns := make(asm.Instructions, len(spec.Instructions))
	for i := range insns {
		// Source lines are only used in the verifier's log, which this load does not request.
		insns[i] = spec.Instructions[i].WithSource(nil)
		if fn := btf.FuncMetadata(&insns[i]); fn != nil && fn.Linkage == btf.StaticFunc {
			insns[i] = btf.WithFuncMetadata(insns[i], withoutTargets(fn))
		}
	}
	if err := setMapFDs(insns, maps); err != nil {
		return nil, err
	}
	functions, err := kernel.functions(spec)
	if err != nil {
		return nil, err
	}
	if err := setFunctionIDs(insns, functions); err != nil {
		return nil, err
	}
	var types btf.Builder
	if err := relocate(insns, spec.ByteOrder, append([]*btf.Spec{kernel.found.Types}, kernel.modules...), &types); err != nil {
		return nil, err
	}
	funcs, _, err := btf.MarshalExtInfos(insns, &types)
	if err != nil {
		return nil, err
	}
	handle, err := btf.NewHandle(&types)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	var code bytes.Buffer
	code.Grow(2 * len(insns) * asm.InstructionSize)
	if err := insns.Marshal(&code, spec.ByteOrder); err != nil {
		return nil, err
	}
	attr := tracingAttr(spec, target)
	attr.insns, attr.count = unsafe.Pointer(unsafe.SliceData(code.Bytes())), uint32(code.Len()/asm.InstructionSize)
	attr.btf = uint32(handle.FD())
	attr.funcInfo, attr.funcSize, attr.funcs = unsafe.Pointer(unsafe.SliceData(funcs)), btf.FuncInfoSize, uint32(len(funcs))/btf.FuncInfoSize
	fd, err := attr.load()
	if err != nil {
		return nil, err
	}
	return ebpf.NewProgramFromFD(fd)
}

// withoutTargets returns the function with all pointers in its parameters replaced by void *. The
// verifier checks their types only in global functions, and the types that struct sock refers to
// take 80 KB.
func withoutTargets(fn *btf.Func) *btf.Func {
	proto, ok := fn.Type.(*btf.FuncProto)
	if !ok {
		return fn
	}
	params := slices.Clone(proto.Params)
	for i := range params {
		if _, ok := params[i].Type.(*btf.Pointer); ok {
			params[i].Type = &btf.Pointer{Target: &btf.Void{}}
		}
	}
	return &btf.Func{Name: fn.Name, Linkage: fn.Linkage, Type: &btf.FuncProto{Return: proto.Return, Params: params}}
}

// setMapFDs sets the descriptors of the maps that the instructions reference.
func setMapFDs(insns asm.Instructions, maps map[string]*ebpf.Map) error {
	for i := range insns {
		ins := &insns[i]
		ref := ins.Reference()
		if !ins.IsLoadFromMap() || ref == "" {
			continue
		}
		m := maps[ref]
		if m == nil {
			return fmt.Errorf("map %s: %w", ref, ebpf.ErrMapIncompatible)
		}
		if err := ins.AssociateMap(m); err != nil {
			return err
		}
	}
	return nil
}

// setFunctionIDs sets the IDs of kernel functions in calls, and in the checks whether the functions
// exist. For a missing function the check finds 0 and the call is never reached. The metadata of these
// instructions, for which the library would search the function in all types of the kernel, is removed.
// Other kernel symbols are not supported.
func setFunctionIDs(insns asm.Instructions, ids map[string]btf.TypeID) error {
	for i := range insns {
		ins := &insns[i]
		id, ok := ids[ins.Reference()]
		switch {
		case ok && ins.IsKfuncCall() && id == 0:
			*ins = noFunction.Call().WithSymbol(ins.Symbol())
		case ok && (ins.IsKfuncCall() || ins.OpCode.IsDWordLoad()):
			*ins = asm.Instruction{OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Constant: int64(id)}.WithSymbol(ins.Symbol())
		case isSymbol(ins):
			return fmt.Errorf("symbol %s: %w", ins.Reference(), ebpf.ErrNotSupported)
		}
	}
	return nil
}

// isSymbol reports whether the instruction loads the address of a kernel symbol.
func isSymbol(ins *asm.Instruction) bool {
	return ins.OpCode.IsDWordLoad() && ins.Src == asm.R0 && ins.Reference() != ""
}

// noFunction is the number of a helper that no kernel has.
const noFunction asm.BuiltinFunc = 0xdedc0de

// relocate applies CO-RE relocations for the types of the kernel.
func relocate(insns asm.Instructions, order binary.ByteOrder, targets []*btf.Spec, types *btf.Builder) error {
	var relos []*btf.CORERelocation
	var at []*asm.Instruction
	for i := range insns {
		if r := btf.CORERelocationMetadata(&insns[i]); r != nil {
			relos, at = append(relos, r), append(at, &insns[i])
		}
	}
	if len(relos) == 0 {
		return nil
	}
	fixups, err := btf.CORERelocate(relos, targets, order, types.Add)
	if err != nil {
		return err
	}
	for i := range fixups {
		if err := fixups[i].Apply(at[i]); err != nil {
			return err
		}
	}
	return nil
}

// loadAttr is the part of union bpf_attr for BPF_PROG_LOAD up to attach_btf_id.
type loadAttr struct {
	typ, count         uint32
	insns, license     unsafe.Pointer
	logLevel, logSize  uint32
	log                unsafe.Pointer
	version, flags     uint32
	name               [16]byte
	ifindex, attach    uint32
	btf, funcSize      uint32
	funcInfo           unsafe.Pointer
	funcs, lineSize    uint32
	lineInfo           unsafe.Pointer
	lines, attachBTFID uint32
}

func tracingAttr(spec *ebpf.ProgramSpec, target btf.TypeID) *loadAttr {
	license := append([]byte(spec.License), 0)
	attr := &loadAttr{
		typ: unix.BPF_PROG_TYPE_TRACING, attach: uint32(spec.AttachType), attachBTFID: uint32(target),
		flags: spec.Flags, license: unsafe.Pointer(&license[0]),
	}
	copy(attr.name[:len(attr.name)-1], spec.Name)
	return attr
}

// load loads the program. The kernel returns EAGAIN if a signal arrives, such as those of the Go
// runtime; then it is repeated.
func (a *loadAttr) load() (fd int, err error) {
	const attempts = 30
	for range attempts {
		r, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a))
		if errno == 0 {
			return int(r), nil
		}
		if errno != unix.EAGAIN {
			return 0, a.explain(errno)
		}
	}
	return 0, unix.EAGAIN
}

// explain returns errNoLog if the kernel returns EPERM without a message of the verifier.
func (a *loadAttr) explain(errno syscall.Errno) error {
	if errno != unix.EPERM {
		return errno
	}
	log := make([]byte, 1<<16)
	a.logLevel, a.log, a.logSize = 1, unsafe.Pointer(&log[0]), uint32(len(log))
	_, _, errno = unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(a)), unsafe.Sizeof(*a))
	if errno == unix.EPERM && log[0] == 0 {
		return fmt.Errorf("%w: %w", errNoLog, errno)
	}
	return errno
}
