package probe

import (
	"errors"
	"fmt"

	"github.com/corescope/corescope/internal/usdt"
)

// usdtArgsMax is USDT_ARGS_MAX of usdt.bpf.h.
const usdtArgsMax = 12

var errTooMany = errors.New("too many USDT arguments")

// usdtReg, usdtArg and usdtSpec are the structs of usdt.bpf.h.
type usdtReg struct {
	Offset                       uint16
	IsSet, Shift, Drop, IsSigned uint8
	_                            [2]byte
}

type usdtArg struct {
	Disp                        int64
	Base, Index                 usdtReg
	Kind, Scale, Drop, IsSigned uint8
	_                           [4]byte
}

type usdtSpec struct {
	Args [usdtArgsMax]usdtArg
	Nr   uint64 `btf:"nr_args"`
}

// newUSDTSpec converts the arguments of a probe to the struct of usdt.bpf.h.
func newUSDTSpec(args []usdt.Arg) (usdtSpec, error) {
	spec := usdtSpec{Nr: uint64(len(args))}
	if len(args) > usdtArgsMax {
		return spec, fmt.Errorf("%w: %d, the maximum is %d", errTooMany, len(args), usdtArgsMax)
	}
	for i, a := range args {
		spec.Args[i] = usdtArg{
			Disp: a.Disp, Base: newUSDTReg(a.Base), Index: newUSDTReg(a.Index),
			Kind: uint8(a.Kind), Scale: a.Shift, Drop: 64 - 8*a.Size, IsSigned: bit(a.Signed),
		}
	}
	return spec, nil
}

func newUSDTReg(r *usdt.Reg) usdtReg {
	if r == nil {
		return usdtReg{}
	}
	return usdtReg{Offset: r.Offset, IsSet: 1, Shift: r.Shift, Drop: 64 - 8*r.Size, IsSigned: bit(r.Signed)}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// spec stores the locations of arguments in the map usdt_specs and returns their key. Equal
// locations share an entry.
func (u *user) spec(args []usdt.Arg) (uint32, error) {
	spec, err := newUSDTSpec(args)
	if err != nil {
		return 0, err
	}
	if nr, ok := u.specs[spec]; ok {
		return nr, nil
	}
	m := u.objects.Maps["usdt_specs"]
	if m == nil { // the programs do not read arguments
		return 0, nil
	}
	nr := uint32(len(u.specs))
	if nr == m.MaxEntries() {
		return 0, fmt.Errorf("%w: the maximum is %d different locations", errTooMany, nr)
	}
	if err := m.Put(nr, &spec); err != nil {
		return 0, fmt.Errorf("store locations of USDT arguments: %w", err)
	}
	u.specs[spec] = nr
	return nr, nil
}
