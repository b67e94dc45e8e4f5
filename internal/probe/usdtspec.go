package probe

import (
	"errors"
	"fmt"

	"github.com/corescope/corescope/internal/usdt"
)

// usdtArgsMax is USDT_ARGS_MAX of usdt.bpf.h.
const usdtArgsMax = 12

var errTooMany = errors.New("there are too many")

// usdtReg, usdtArg and usdtSpec are the structs of usdt.bpf.h.
type usdtReg struct {
	Offset                         uint16
	Present, Shift, Drop, IsSigned uint8
	_                              [2]byte
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

func usdtSpecOf(args []usdt.Arg) (usdtSpec, error) {
	spec := usdtSpec{Nr: uint64(len(args))}
	if len(args) > usdtArgsMax {
		return spec, fmt.Errorf("%d arguments: %w", len(args), errTooMany)
	}
	for i, a := range args {
		spec.Args[i] = usdtArg{
			Disp: a.Disp, Base: regOf(a.Base), Index: regOf(a.Index),
			Kind: uint8(a.Kind), Scale: a.Shift, Drop: 64 - 8*a.Size, IsSigned: bit(a.Signed),
		}
	}
	return spec, nil
}

func regOf(r *usdt.Reg) usdtReg {
	if r == nil {
		return usdtReg{}
	}
	return usdtReg{Offset: r.Offset, Present: 1, Shift: r.Shift, Drop: 64 - 8*r.Size, IsSigned: bit(r.Signed)}
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// spec returns the number of where arguments lie, for the programs to find it by.
func (u *user) spec(args []usdt.Arg) (uint32, error) {
	spec, err := usdtSpecOf(args)
	if err != nil {
		return 0, err
	}
	if nr, ok := u.specs[spec]; ok {
		return nr, nil
	}
	m := u.objects.Maps["usdt_specs"]
	if m == nil { // the programs look at no arguments
		return 0, nil
	}
	nr := uint32(len(u.specs))
	if nr == m.MaxEntries() {
		return 0, fmt.Errorf("places of arguments: %w", errTooMany)
	}
	if err := m.Put(nr, &spec); err != nil {
		return 0, fmt.Errorf("say where arguments lie: %w", err)
	}
	u.specs[spec] = nr
	return nr, nil
}
