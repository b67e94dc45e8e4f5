package column

import (
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
)

// names collects the names that an expression reads, in any order.
type names map[string]bool

func (n names) Visit(node *ast.Node) {
	if id, ok := (*node).(*ast.IdentifierNode); ok {
		n[id.Value] = true
	}
}

func namesOf(node ast.Node) names {
	n := names{}
	ast.Walk(&node, n)
	return n
}

// usesName reports whether the program may read the column. $env gives access to all names.
func usesName(p *vm.Program, key string) bool {
	n := namesOf(p.Node())
	return n[key] || n[absent(key)] || n["$env"]
}
