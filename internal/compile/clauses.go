package compile

import (
	"fmt"
	"strings"
)

// Clauses are what stands behind the name of a probe:
//
//	(dfd, filename:str) if dfd == -100       what is shown, and a condition
//	(skb->len > 128, skb)                    ksnoop: conditions are among the arguments
//	(arg2 == 42) "%s %d", arg1, arg2         BCC: a condition, a format and its arguments
//	(int dfd, const char *name) "%s", name   BCC: a signature, names for the arguments
type Clauses struct {
	Items  []Item
	Where  []Expr
	Params []Param
	// Format is BCC's, with a verb for each item behind it.
	Format string
}

// Item is an expression that is shown.
type Item struct {
	Expr Expr
	// Source is the expression as it was written.
	Source string
	// As is how it is shown, behind a colon: "str", "x".
	As string
}

// Param is a name and type that the user gives to an argument.
type Param struct {
	Name string
	Type typeName
}

// ParseClauses reads what stands behind the name of a probe.
//
// Returns ErrSyntax.
func ParseClauses(text string) (*Clauses, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	c := &Clauses{}
	for p.accept("(") {
		if err := p.parenthesized(text, c); err != nil {
			return nil, err
		}
	}
	if p.peek().kind == tokenString {
		if err := p.format(text, c); err != nil {
			return nil, err
		}
	}
	if t := p.peek(); t.kind == tokenName && t.text == "if" {
		p.take()
		where, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		c.Where = append(c.Where, where)
	}
	if p.peek().kind != tokenEnd {
		return nil, p.unexpected()
	}
	return c, nil
}

// parenthesized reads a list, up to its end.
func (p *parser) parenthesized(text string, c *Clauses) error {
	for n := 0; !p.accept(")"); n++ {
		if n > 0 {
			if err := p.expect(","); err != nil {
				return err
			}
		}
		if param, ok := p.param(); ok {
			c.Params = append(c.Params, param)
			continue
		}
		item, err := p.item(text)
		if err != nil {
			return err
		}
		if isCondition(item.Expr) && item.As == "" {
			c.Where = append(c.Where, item.Expr)
		} else {
			c.Items = append(c.Items, item)
		}
	}
	return nil
}

// param reads "const char *name", if that is there.
func (p *parser) param() (Param, bool) {
	start := p.at
	if t, ok := p.typeName(); ok && p.peek().kind == tokenName {
		return Param{p.take().text, t}, true
	}
	p.at = start
	return Param{}, false
}

func (p *parser) item(text string) (Item, error) {
	start := p.peek().pos
	e, err := p.expression(0)
	if err != nil {
		return Item{}, err
	}
	item := Item{Expr: e, Source: strings.TrimSpace(text[start:p.peek().pos])}
	if p.accept(":") {
		t := p.take()
		if t.kind != tokenName {
			return item, fmt.Errorf("%w: behind a colon is str, x, d or u", ErrSyntax)
		}
		item.As = t.text
	}
	return item, nil
}

func (p *parser) format(text string, c *Clauses) error {
	c.Format = p.take().text
	for p.accept(",") {
		item, err := p.item(text)
		if err != nil {
			return err
		}
		c.Items = append(c.Items, item)
	}
	return nil
}

// isCondition tells expressions that are true or false.
func isCondition(e Expr) bool {
	switch e := e.(type) {
	case *binaryExpr:
		switch e.op {
		case "==", "!=", "<", "<=", ">", ">=", "&&", "||":
			return true
		}
	case *unaryExpr:
		return e.op == "!"
	case *callExpr:
		return e.name == "STRCMP"
	}
	return false
}

// Resolve finds a parameter's type; without BTF those of C are known.
//
// Returns ErrType.
func (p *Param) Resolve(s *Scope) (Var, error) {
	t, err := p.Type.resolve(s.Types)
	if err != nil {
		return Var{}, fmt.Errorf("%w: argument %s: %w", ErrType, p.Name, err)
	}
	return Var{Type: t}, nil
}

// As is the variable with another type.
func (v Var) As(other Var) Var {
	v.Type = other.Type
	return v
}

// IsName tells an expression that is just that name.
func IsName(e Expr, name string) bool {
	n, ok := e.(*nameExpr)
	return ok && n.name == name
}
