package probe

import (
	"fmt"

	"github.com/cilium/ebpf/asm"
)

// targetFunction is the function of a program that tells which target it was called for
// (target.bpf.h).
const targetFunction = "target_id"

// replaceFunction gives a BPF-to-BPF function of a program another body. The program
// must call it: the C has a static function of that name that is not inlined.
func replaceFunction(program asm.Instructions, name string, body asm.Instructions) (asm.Instructions, error) {
	start, end := -1, len(program)
	for i := range program {
		switch symbol := program[i].Symbol(); {
		case symbol == name:
			start = i
		case symbol != "" && start >= 0 && i < end:
			end = i
		}
	}
	if start < 0 {
		return nil, fmt.Errorf("the program has no function %s", name)
	}
	out := append(asm.Instructions{}, program[:start]...)
	// The first instruction keeps its symbol, and the types and line that the kernel
	// wants each function to have.
	out = append(out, body[0].WithMetadata(program[start].Metadata))
	out = append(out, body[1:]...)
	return append(out, program[end:]...), nil
}

// constantTarget is the body of target_id for a program with one target.
func constantTarget(id uint64) asm.Instructions {
	return asm.Instructions{asm.LoadImm(asm.R0, int64(id), asm.DWord), asm.Return()}
}

// cookieTarget is the body of target_id where the kernel keeps a number for each
// attachment: kprobe_multi from 5.18 on, uprobe_multi 6.6, the others 5.15.
func cookieTarget() asm.Instructions {
	return asm.Instructions{asm.FnGetAttachCookie.Call(), asm.Return()}
}
