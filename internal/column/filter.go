package column

import (
	"fmt"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/vm"
)

// Filter is an expression over columns, such as
//
//	ret < 0 and path startsWith "/etc"
//
// in the language of github.com/expr-lang/expr. Variables are column keys. KEY == nil is true if the
// row has no value in the column. Otherwise such a column is "", false or empty; if it is a number or
// a time, comparisons with it are false.
type Filter struct {
	cols    []Column
	env     map[string]any
	program *vm.Program
	vm      vm.VM
}

// NewFilter compiles source. Errors, such as an unknown name or a comparison of
// mismatched types, include the position in source. A column that is off can only be compared with nil:
// any other condition on it would select no row.
//
// Returns ErrOff.
func NewFilter(source string, cols []Column) (*Filter, error) {
	f := &Filter{env: map[string]any{}}
	a := newAbsences(cols)
	for _, c := range cols {
		f.env[c.Key] = zero(&c)
		f.env[absent(c.Key)] = false
	}
	program, err := expr.Compile(source, expr.Env(f.env), expr.AsBool(), expr.Patch(a), functionsAreNoValues)
	if err != nil {
		return nil, fmt.Errorf("compile filter: %w", err)
	}
	f.program = program
	used := namesOf(program.Node())
	for _, c := range cols {
		if c.Off && used[c.Key] {
			return nil, fmt.Errorf("column %q: %w", c.Key, ErrOff)
		}
		if usesName(program, c.Key) {
			f.cols = append(f.cols, c)
		}
	}
	return f, nil
}

// functionsAreNoValues makes the name of a function, such as count, an unknown name unless it is called or
// names a column. Otherwise a comparison with it would fail because of the type of the function.
func functionsAreNoValues(c *conf.Config) { clear(c.Builtins) }

// zero returns the zero value of the type that the column's Any returns.
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

// Needs returns the columns that the filter reads.
func (f *Filter) Needs() []Column { return f.cols }

// Match reports whether the bound row passes the filter.
func (f *Filter) Match() (bool, error) {
	for i := range f.cols {
		c := &f.cols[i]
		isAbsent := c.Absent()
		f.env[absent(c.Key)] = isAbsent
		if isAbsent {
			f.env[c.Key] = zero(c)
		} else {
			f.env[c.Key] = c.Any()
		}
	}
	out, err := f.vm.Run(f.program, f.env)
	if err != nil {
		return false, fmt.Errorf("evaluate filter: %w", err)
	}
	return out.(bool), nil
}
