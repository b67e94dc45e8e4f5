package tools_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Limits of the verifier for a chain of calls.
const (
	maxCallStack   = 512 // bytes, MAX_BPF_STACK
	maxCallFrames  = 8   // MAX_CALL_FRAMES
	callStackAlign = 32  // bytes per frame; newer kernels align frames of compiled programs to 16
)

// Old kernels refuse programs whose calls need more stack than newer ones allow, which a live test
// on a newer kernel does not notice. Functions that a run removes count too, as in the kernel, where
// only those are removed that the constants rule out.
func TestCallStacks(t *testing.T) {
	deepest := callStack{}
	eachProgram(t, func(object, name string, prog *ebpf.ProgramSpec) {
		s, err := deepestCalls(prog.Instructions)
		if err != nil {
			t.Errorf("%s, program %s: %v", object, name, err)
		}
		if s.bytes > maxCallStack || s.frames > maxCallFrames {
			t.Errorf("%s, program %s: calls need %d bytes of stack in %d frames", object, name, s.bytes, s.frames)
		}
		deepest.extend(s)
	})
	if deepest.frames < 2 || deepest.bytes < callStackAlign {
		t.Errorf("no program calls a function with a stack: %+v", deepest)
	}
}

// callStack has the maximum over chains of calls of the bytes and of the frames.
type callStack struct{ bytes, frames int }

func (s *callStack) extend(o callStack) {
	s.bytes, s.frames = max(s.bytes, o.bytes), max(s.frames, o.frames)
}

// callFunction is a function of a program: the bytes of its own frame and the functions it calls.
type callFunction struct {
	bytes int
	calls []string
}

var errRecursion = errors.New("recursive call")

// deepestCalls returns the stack that the calls of a program need, which begins with its main function.
func deepestCalls(ins asm.Instructions) (callStack, error) {
	functions := callFunctions(ins)
	return callsOf(functions, ins[0].Symbol(), 1)
}

func callsOf(functions map[string]*callFunction, name string, depth int) (callStack, error) {
	f := functions[name]
	if f == nil {
		return callStack{}, fmt.Errorf("function %q is missing", name)
	}
	if depth > len(functions) {
		return callStack{}, errRecursion
	}
	below := callStack{}
	for _, called := range f.calls {
		s, err := callsOf(functions, called, depth+1)
		if err != nil {
			return s, err
		}
		below.extend(s)
	}
	frame := (max(f.bytes, 1) + callStackAlign - 1) / callStackAlign * callStackAlign
	return callStack{bytes: frame + below.bytes, frames: 1 + below.frames}, nil
}

// callFunctions returns the functions of a program. An address in the frame is that of the lowest
// byte of an access: R10 with a negative offset, or a copy of R10 to which a negative number is added.
func callFunctions(ins asm.Instructions) map[string]*callFunction {
	functions := map[string]*callFunction{}
	var f *callFunction
	var frame [11]bool // registers that are copies of R10
	for i := range ins {
		in := &ins[i]
		if sym := in.Symbol(); sym != "" {
			f, frame = &callFunction{}, [11]bool{asm.R10: true}
			functions[sym] = f
		}
		class := in.OpCode.Class()
		switch {
		case in.IsFunctionReference():
			f.calls = append(f.calls, in.Reference())
		case class.IsALU() && in.OpCode.ALUOp() == asm.Mov:
			frame[in.Dst] = in.OpCode.Source() == asm.RegSource && frame[in.Src]
		case class.IsALU() && in.OpCode.ALUOp() == asm.Add && in.OpCode.Source() == asm.ImmSource && frame[in.Dst]:
			f.bytes = max(f.bytes, -int(in.Constant))
			frame[in.Dst] = false
		case class.IsLoad() && in.Src == asm.R10, class.IsStore() && in.Dst == asm.R10:
			f.bytes = max(f.bytes, -int(in.Offset))
		}
	}
	return functions
}
