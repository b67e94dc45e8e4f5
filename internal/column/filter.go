package column

import (
	"fmt"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"
)

// Filter is an expression over columns, such as
//
//	ret < 0 and path startsWith "/etc"
//
// in the language of github.com/expr-lang/expr. Columns go by their keys. One that
// the row has not counts as 0, false, "" or an empty list.
type Filter struct {
	cols    []Column
	env     map[string]any
	program *vm.Program
	vm      vm.VM
}

// NewFilter compiles source over the columns. The error of a name that is not
// there, or of a comparison of unlike types, points to its place.
func NewFilter(source string, cols []Column) (*Filter, error) {
	f := &Filter{env: map[string]any{}}
	for _, c := range cols {
		f.env[c.Key] = zero(&c)
	}
	program, err := expr.Compile(source, expr.Env(f.env), expr.AsBool())
	if err != nil {
		return nil, fmt.Errorf("compile filter: %w", err)
	}
	f.program = program
	for _, c := range cols {
		if usesName(program, c.Key) {
			f.cols = append(f.cols, c)
		}
	}
	return f, nil
}

// zero is a value of the column's type, for the compiler.
func zero(c *Column) any {
	switch c.Schema().Type {
	case "boolean":
		return false
	case "integer":
		return 0
	case "number":
		return 0.0
	case "array":
		return []string{}
	case "object":
		return map[string]any{}
	}
	if c.Schema().Format == "date-time" {
		return time.Time{}
	}
	return ""
}

// Needs lists the columns that the filter reads.
func (f *Filter) Needs() []Column { return f.cols }

// Match reports whether the row that the columns are bound to is wanted.
func (f *Filter) Match() (bool, error) {
	for i := range f.cols {
		c := &f.cols[i]
		if c.Absent() {
			f.env[c.Key] = zero(c)
			continue
		}
		f.env[c.Key] = c.Any()
	}
	out, err := f.vm.Run(f.program, f.env)
	if err != nil {
		return false, fmt.Errorf("evaluate filter: %w", err)
	}
	return out.(bool), nil
}
