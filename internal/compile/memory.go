package compile

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// address computes the address of a member, element or dereferenced pointer to R0. It returns
// the member and its offset from R0 in bits.
func (g *generator) address(e Expr) (btf.Member, btf.Bits, error) {
	switch e := e.(type) {
	case *memberExpr:
		return g.member(e)
	case *indexExpr:
		return g.element(e.x, e.index)
	case *unaryExpr:
		if e.op == "*" {
			return g.element(e.x, &numberExpr{})
		}
	}
	return btf.Member{}, 0, fmt.Errorf("%w: operand of & has no address", ErrType)
}

// member is address for a member of a struct or of a pointer to a struct.
func (g *generator) member(e *memberExpr) (btf.Member, btf.Bits, error) {
	of, bits, err := g.structure(e.x)
	if err != nil {
		return btf.Member{}, 0, err
	}
	m, offset, ok := field(of, e.name)
	if !ok {
		return m, 0, fmt.Errorf("%w: %s has no member %s", ErrType, describe(of), e.name)
	}
	return m, bits + offset, nil
}

// structure computes the address of a struct to R0, for an expression that is a struct or a
// pointer to one. It returns the struct and its offset from R0 in bits.
func (g *generator) structure(e Expr) (btf.Type, btf.Bits, error) {
	if m, ok := e.(*memberExpr); ok && (IsName(m.x, "args") || IsName(m.x, "ctx")) && g.scope.isRecord(m.x.(*nameExpr).name) {
		t, err := g.value(e)
		if err != nil || isStruct(t) {
			return t, 0, err
		}
		return pointed(t)
	}
	switch e.(type) {
	case *memberExpr, *indexExpr:
		m, bits, err := g.address(e)
		if err != nil {
			return nil, 0, err
		}
		if isStruct(m.Type) {
			return m.Type, bits, nil
		}
		if err := g.load(m, bits); err != nil {
			return nil, 0, err
		}
		return pointed(m.Type)
	}
	t, err := g.value(e)
	if err != nil || isStruct(t) {
		return t, 0, err
	}
	return pointed(t)
}

func pointed(t btf.Type) (btf.Type, btf.Bits, error) {
	if of, ok := elem(t); ok && isStruct(of) {
		return of, 0, nil
	}
	return nil, 0, fmt.Errorf("%w: %s is neither a struct nor a pointer to one", ErrType, describe(t))
}

func isStruct(t btf.Type) bool {
	switch btf.UnderlyingType(t).(type) {
	case *btf.Struct, *btf.Union:
		return true
	}
	return false
}

// element is address for x[index], where x is a pointer or an array.
func (g *generator) element(x, index Expr) (btf.Member, btf.Bits, error) {
	var none btf.Member
	t, err := g.value(x)
	if err != nil {
		return none, 0, err
	}
	of, ok := elem(t)
	if !ok {
		return none, 0, fmt.Errorf("%w: %s is neither a pointer nor an array", ErrType, describe(t))
	}
	size, err := btf.Sizeof(of)
	if err != nil || size == 0 {
		return none, 0, fmt.Errorf("%w: size of %s is unknown", ErrType, describe(of))
	}
	if n, ok := index.(*numberExpr); ok && n.value <= 1<<20 && n.value*uint64(size) < 1<<28 {
		return btf.Member{Type: of}, btf.Bits(n.value * uint64(size) * 8), nil
	}
	if err := g.push(); err != nil {
		return none, 0, err
	}
	if _, err := g.arithmetic(index); err != nil {
		return none, 0, err
	}
	g.pop(asm.R1)
	g.emit(
		asm.LoadImm(asm.R2, int64(size), asm.DWord),
		asm.Mul.Reg(asm.R0, asm.R2),
		asm.Add.Reg(asm.R1, asm.R0), asm.Mov.Reg(asm.R0, asm.R1),
	)
	return btf.Member{Type: of}, 0, nil
}

// load reads the member at offset bits from the address in R0. For arrays and structs, it
// computes the address.
func (g *generator) load(m btf.Member, bits btf.Bits) error {
	s, ok := scalarOf(m.Type)
	switch {
	case !ok:
		g.emit(asm.Add.Imm(asm.R0, int32(bits/8)))
		return nil
	case m.BitfieldSize != 0:
		return g.loadBits(s, bits, m.BitfieldSize)
	case bits%8 != 0:
		return fmt.Errorf("%w: member is not aligned to a byte", ErrType)
	}
	g.emit(asm.Add.Imm(asm.R0, int32(bits/8)))
	if err := g.read(int32(s.size)); err != nil {
		return err
	}
	g.emit(asm.LoadMem(asm.R0, asm.RFP, scratch, sizeOf(s.size)))
	g.narrow(s)
	return nil
}

// loadBits reads a bit field: it reads the bytes that contain it and shifts them.
func (g *generator) loadBits(s scalar, bits, size btf.Bits) error {
	first := bits / 8
	n := (bits+size+7)/8 - first
	if n > 8 {
		return fmt.Errorf("%w: bit field spans %d bytes, the maximum is 8", ErrType, n)
	}
	g.zero(asm.RFP, scratch)
	g.emit(asm.Add.Imm(asm.R0, int32(first)))
	if err := g.read(int32(n)); err != nil {
		return err
	}
	shift := asm.RSh
	if s.signed {
		shift = asm.ArSh
	}
	g.emit(
		asm.LoadMem(asm.R0, asm.RFP, scratch, asm.DWord),
		asm.LSh.Imm(asm.R0, int32(64-(bits-8*first)-size)),
		shift.Imm(asm.R0, int32(64-size)),
	)
	return nil
}

func sizeOf(n uint32) asm.Size { return chunk(int(n)) }

// read copies size bytes from the address in R0 to the scratch slot.
func (g *generator) read(size int32) error {
	return g.readMemory(asm.RFP, scratch, size, asm.FnProbeReadKernel, asm.FnProbeReadUser, asm.JEq)
}

// lowest is the lowest address that is not considered a null pointer, nor a member of what it
// points to.
const lowest = 4096

// readMemory reads from the address in R0, in kernel or user memory. No address is valid in
// both, so if the first helper fails, the second one is tried. success is the comparison of a
// helper's result with 0 that holds on success.
func (g *generator) readMemory(
	to asm.Register, at int, size int32, kernel, user asm.BuiltinFunc, success asm.JumpOp,
) error {
	helpers := []asm.BuiltinFunc{kernel, user}
	if g.scope.UserFirst {
		slices.Reverse(helpers)
		g.faults = true
	}
	if err := g.push(); err != nil {
		return err
	}
	done := g.label()
	call := func(fn asm.BuiltinFunc, size, offset int32) {
		g.top(asm.R3)
		if offset != 0 {
			g.emit(asm.Add.Imm(asm.R3, offset))
		}
		g.emit(asm.Mov.Reg(asm.R1, to), asm.Add.Imm(asm.R1, int32(at)), asm.Mov.Imm(asm.R2, size), fn.Call())
	}
	for _, fn := range helpers {
		call(fn, size, 0)
		g.emit(success.Imm(asm.R0, 0, done))
	}
	g.top(asm.R1)
	g.emit(asm.JLT.Imm(asm.R1, lowest, g.none))
	if g.scope.UserFirst && g.sleepable {
		// Both helpers fail if a page is not resident. bpf_copy_from_user waits for the page of
		// one byte. The second page, if there is one, is only read if a text reaches it.
		for _, offset := range slices.Compact([]int32{0, size - 1}) {
			call(asm.FnCopyFromUser, 1, offset)
			call(user, size, 0)
			g.emit(success.Imm(asm.R0, 0, done))
		}
	}
	g.emit(asm.Ja.Label(g.fail))
	g.mark(done)
	g.depth--
	return nil
}

// commSize is TASK_COMM_LEN.
const commSize = 16

// IsComm reports whether an expression is the name of the current task.
func IsComm(e Expr) bool {
	n, ok := e.(*nameExpr)
	return ok && builtins()[n.name].comm
}

// readText reads a string to memory and sets R0 to its length, including the NUL. It sets
// *of to the type of the expression.
func (g *generator) readText(e Expr, to asm.Register, at, size int, of *btf.Type) error {
	if IsComm(e) {
		*of = &btf.Array{Type: ints()["char"], Nelems: commSize}
		g.emit(
			asm.Mov.Reg(asm.R1, to), asm.Add.Imm(asm.R1, int32(at)),
			asm.Mov.Imm(asm.R2, commSize), asm.FnGetCurrentComm.Call(),
			asm.Mov.Imm(asm.R0, commSize),
		)
		return nil
	}
	t, err := g.value(e)
	if err != nil {
		return err
	}
	s, isScalar := scalarOf(t)
	array, isArray := btf.UnderlyingType(t).(*btf.Array)
	if isScalar && s.size != 8 || !isScalar && !isArray {
		return fmt.Errorf("%w: %s is neither a string nor an address", ErrType, describe(t))
	}
	if isArray && isText(t) && array.Nelems > 0 {
		size = min(size, int(array.Nelems))
	}
	*of = t
	// Before 6.13, reading an empty string from user memory returns 0 and writes no NUL.
	g.emit(asm.StoreImm(to, int16(at), 0, asm.Byte))
	return g.readMemory(to, at, int32(size), asm.FnProbeReadKernelStr, asm.FnProbeReadUserStr, asm.JSGE)
}
