package fetch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/target"
)

// entryFunction is the name of the BPF function that stores arguments at the entry of a call.
const entryFunction = "fetch_entry"

// entryMax is ENTRY_MAX of the programs: the number of arguments that are stored.
const entryMax = 6

// call has what a probe at the return of a function needs from the entry of the call.
type call struct {
	scope *compile.Scope // at the entry
	names []string       // of the arguments to store
}

// addCall adds $latency and $entry to the scope of a return, if the probe uses them. The programs
// store both after the data: the duration, a bitmap of missing arguments, and the arguments.
func (f *Finder) addCall(s *compile.Scope, p *Probe, place *target.Place) (*call, error) {
	if !f.Calls || !place.Return || !strings.Contains(p.Text, "$latency") && !strings.Contains(p.Text, "$entry") {
		return nil, nil
	}
	at := *place
	at.Return = false
	scope, err := f.scope(p, &at)
	if err != nil {
		return nil, err
	}
	c := &call{scope: scope}
	s.Vars["$latency"] = compile.Saved(&btf.Int{Name: "unsigned long", Size: 8}, f.DataMax, 0, -1)
	s.Entry = func(name string) (compile.Var, error) {
		arg, ok := scope.Vars[name]
		if !ok {
			return compile.Var{}, fmt.Errorf("%w: $entry(%s): unknown argument %s", compile.ErrType, name, name)
		}
		i := slices.Index(c.names, name)
		if i < 0 {
			i = len(c.names)
			c.names = append(c.names, name)
		}
		if i >= entryMax {
			return compile.Var{}, fmt.Errorf("%w: $entry with more than %d arguments", compile.ErrType, entryMax)
		}
		return compile.Saved(arg.Type, f.DataMax+16+8*i, f.DataMax+8, i), nil
	}
	return c, nil
}

// compile compiles the code for the entry of the call. The result is nil without a call.
func (c *call) compile() (*compile.Result, error) {
	if c == nil {
		return nil, nil
	}
	program := &compile.Program{}
	for _, name := range c.names {
		program.Fields = append(program.Fields, compile.Field{Name: name, Expr: compile.NameOf(name)})
	}
	return compile.Compile(entryFunction, program, c.scope)
}
