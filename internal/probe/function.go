package probe

import (
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
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

// Cut has a function of the programs do nothing but return 0, and takes out the functions
// and the maps that only it uses: these are neither looked at nor made then. As with
// target_id, the C has a static function of that name that is not inlined.
func Cut(spec *ebpf.CollectionSpec, function string) {
	used, unused := map[string]bool{}, map[string]bool{}
	for _, prog := range spec.Programs {
		functions := byFunction(prog.Instructions)
		if body := functions[function]; body != nil {
			addMaps(unused, body)
			functions[function] = asm.Instructions{asm.LoadImm(asm.R0, 0, asm.DWord).WithMetadata(body[0].Metadata), asm.Return()}
			prog.Instructions = called(functions, prog.Instructions[0].Symbol())
			for _, body := range functions {
				addMaps(unused, body)
			}
		}
		addMaps(used, prog.Instructions)
	}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return unused[name] && !used[name] })
}

// byFunction returns the functions of a program by name.
func byFunction(program asm.Instructions) map[string]asm.Instructions {
	functions := map[string]asm.Instructions{}
	end := len(program)
	for i := end - 1; i >= 0; i-- {
		if symbol := program[i].Symbol(); symbol != "" {
			functions[symbol] = program[i:end]
			end = i
		}
	}
	return functions
}

// called is the program of those functions that the first one refers to, or others do that
// it refers to. It takes them out of the functions.
func called(functions map[string]asm.Instructions, first string) asm.Instructions {
	var out asm.Instructions
	for next := []string{first}; len(next) > 0; next = next[1:] {
		body := functions[next[0]]
		delete(functions, next[0])
		for i := range body {
			if ins := &body[i]; ins.IsFunctionReference() && functions[ins.Reference()] != nil {
				next = append(next, ins.Reference())
			}
		}
		out = append(out, body...)
	}
	return out
}

// addMaps adds the maps that the instructions refer to.
func addMaps(used map[string]bool, insns asm.Instructions) {
	for i := range insns {
		if insns[i].IsLoadFromMap() {
			used[insns[i].Reference()] = true
		}
	}
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
