package column

import (
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
)

type nameFinder struct {
	name  string
	found bool
}

func (n *nameFinder) Visit(node *ast.Node) {
	if id, ok := (*node).(*ast.IdentifierNode); ok && (id.Value == n.name || id.Value == "$env") {
		n.found = true
	}
}

// usesName reports whether the program may read the name. $env gives access to all names.
func usesName(p *vm.Program, name string) bool {
	finder := &nameFinder{name: name}
	node := p.Node()
	ast.Walk(&node, finder)
	return finder.found
}
