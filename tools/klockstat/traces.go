package klockstat

import (
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// traces has one trace for all stacks of the same functions, so that rows with these are equal.
type traces struct {
	env *tool.Env
	all map[string]value.Trace // by the text of the frames
}

// trace returns the trace of return addresses, of which there are as many as are not 0.
func (t *traces) trace(addrs []value.Address) value.Trace {
	var known []uint64
	for _, a := range addrs {
		if a == 0 {
			break
		}
		known = append(known, uint64(a))
	}
	if len(known) == 0 {
		return value.Trace{}
	}
	stack := t.env.KernelFunctions(known)
	text := string(stack.AppendJSON(nil))
	if _, ok := t.all[text]; !ok {
		t.all[text] = value.NewTrace(stack)
	}
	return t.all[text]
}
