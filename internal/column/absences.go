package column

import (
	"maps"
	"slices"

	"github.com/expr-lang/expr/ast"
)

// absent returns the name of the variable that is true if the row has no value in the column. It
// cannot occur in the source of an expression.
func absent(key string) string { return "absent " + key }

// absences rewrites comparisons with columns that may have no value in a row.
type absences struct {
	keys map[string]bool // true for numbers and times, whose zero value is a value as any other
	// variables lists the columns that variables declared by "let" are computed from.
	variables map[string]names
}

func newAbsences(cols []Column) *absences {
	a := &absences{keys: map[string]bool{}, variables: map[string]names{}}
	for i := range cols {
		s := cols[i].Schema()
		a.keys[cols[i].Key] = s.Type == "integer" || s.Type == "number" || s.Format == "date-time"
	}
	return a
}

// Visit replaces the comparison of a column with nil by a variable, and adds to other comparisons
// that the numbers and times in them have values.
func (a *absences) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.VariableDeclaratorNode:
		// The statements after it were visited before: they are rewritten now.
		if cols := a.columns(n.Value); len(cols) > 0 {
			a.variables[n.Name] = cols
			ast.Walk(&n.Expr, a)
		}
	case *ast.BinaryNode:
		if key, ok := a.comparedWithNil(n); ok {
			a.replace(node, key, n.Operator == "==")
		} else if isComparison(n.Operator) {
			a.require(node)
		}
	}
}

func isComparison(operator string) bool {
	return slices.Contains([]string{"==", "!=", "<", "<=", ">", ">=", "in"}, operator)
}

// comparedWithNil returns the column that n compares with nil.
func (a *absences) comparedWithNil(n *ast.BinaryNode) (key string, ok bool) {
	if n.Operator != "==" && n.Operator != "!=" {
		return "", false
	}
	for _, sides := range [][2]ast.Node{{n.Left, n.Right}, {n.Right, n.Left}} {
		id, isName := sides[0].(*ast.IdentifierNode)
		if _, isNil := sides[1].(*ast.NilNode); isName && isNil {
			_, isColumn := a.keys[id.Value]
			return id.Value, isColumn
		}
	}
	return "", false
}

func (a *absences) replace(node *ast.Node, key string, isAbsent bool) {
	var test ast.Node = &ast.IdentifierNode{Value: absent(key)}
	if !isAbsent {
		test = &ast.UnaryNode{Operator: "not", Node: test}
	}
	ast.Patch(node, test)
}

// columns returns the numbers and times that the node is computed from.
func (a *absences) columns(node ast.Node) names {
	all := names{}
	for name := range namesOf(node) {
		if a.keys[name] {
			all[name] = true
		}
		maps.Copy(all, a.variables[name])
	}
	return all
}

// require makes the comparison false if a number or time in it has no value.
func (a *absences) require(node *ast.Node) {
	comparison := *node
	for _, key := range slices.Sorted(maps.Keys(a.columns(comparison))) {
		var has ast.Node = &ast.IdentifierNode{Value: absent(key)}
		has = &ast.UnaryNode{Operator: "not", Node: has}
		comparison = &ast.BinaryNode{Operator: "and", Left: has, Right: comparison}
	}
	if comparison != *node {
		ast.Patch(node, comparison)
	}
}
