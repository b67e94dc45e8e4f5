package probe

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// targetFunction is the function of a program that returns the ID of the current target
// (target.bpf.h).
const targetFunction = "target_id"

// replaceFunction replaces the body of a BPF-to-BPF function. The program must call the function:
// it is a static function in C that is not inlined.
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
		return nil, fmt.Errorf("replace function %s: the program does not contain it", name)
	}
	out := append(asm.Instructions{}, program[:start]...)
	// The first instruction keeps its metadata: the symbol, and the function and line
	// information that the kernel requires for each function.
	out = append(out, body[0].WithMetadata(program[start].Metadata))
	out = append(out, body[1:]...)
	return append(out, program[end:]...), nil
}

// Cut replaces the bodies of functions by "return 0", and removes the functions and maps that only
// these bodies use, so that they are neither verified nor created. The functions are static functions
// in C that are not inlined, like target_id.
func Cut(spec *ebpf.CollectionSpec, functions ...string) {
	used, unused := map[string]bool{}, map[string]bool{}
	for _, prog := range spec.Programs {
		cut(prog, functions, unused)
		addMaps(used, prog.Instructions)
	}
	maps.DeleteFunc(spec.Maps, func(name string, _ *ebpf.MapSpec) bool { return unused[name] && !used[name] })
}

// cut replaces the bodies in a program, and adds the maps of all that it removes.
func cut(prog *ebpf.ProgramSpec, names []string, unused map[string]bool) {
	functions := byFunction(prog.Instructions)
	found := false
	for _, name := range names {
		if body := functions[name]; body != nil {
			addMaps(unused, body)
			functions[name] = asm.Instructions{asm.LoadImm(asm.R0, 0, asm.DWord).WithMetadata(body[0].Metadata), asm.Return()}
			found = true
		}
	}
	if !found {
		return
	}
	same := func(body asm.Instructions) asm.Instructions { return body }
	prog.Instructions = called(functions, same, prog.Instructions[0].Symbol())
	for _, body := range functions {
		addMaps(unused, body)
	}
}

// byFunction splits the instructions of a program by function.
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

// called returns the instructions of these functions and of all that they reference, directly or
// indirectly, as body returns them. It removes them from functions.
func called(functions map[string]asm.Instructions, body func(asm.Instructions) asm.Instructions, names ...string) asm.Instructions {
	var bodies []asm.Instructions
	for next := names; len(next) > 0; next = next[1:] {
		function := functions[next[0]]
		if function == nil {
			continue
		}
		delete(functions, next[0])
		function = body(function)
		for i := range function {
			if ins := &function[i]; ins.IsFunctionReference() && functions[ins.Reference()] != nil {
				next = append(next, ins.Reference())
			}
		}
		bodies = append(bodies, function)
	}
	return slices.Concat(bodies...)
}

// addMaps adds the names of the maps that the instructions reference.
func addMaps(used map[string]bool, insns asm.Instructions) {
	for i := range insns {
		if insns[i].IsLoadFromMap() {
			used[insns[i].Reference()] = true
		}
	}
}

// constantTarget returns a body of target_id for a program with a single target.
func constantTarget(id uint64) asm.Instructions {
	return asm.Instructions{asm.LoadImm(asm.R0, int64(id), asm.DWord), asm.Return()}
}

// cookieTarget returns a body of target_id that reads the attach cookie. Cookies are supported
// since Linux 5.15 for kprobes, uprobes and tracepoints, 5.18 for kprobe_multi and 6.6 for
// uprobe_multi.
func cookieTarget() asm.Instructions {
	return asm.Instructions{asm.FnGetAttachCookie.Call(), asm.Return()}
}
