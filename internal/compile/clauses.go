package compile

import (
	"fmt"
	"strings"
)

// Clauses are the expressions that follow the name of a probe:
//
//	(dfd, filename:str) if dfd == -100       values and a condition
//	(skb->len > 128, skb)                    ksnoop: conditions among the values
//	(arg2 == 42) "%s %d", arg1, arg2         BCC: a condition, a format and its values
//	(int dfd, const char *name) "%s", name   BCC: a signature, which names the arguments
type Clauses struct {
	Items  []Item
	Where  []Expr
	Params []Param
	// Format is a BCC format string. Its verbs correspond to the items.
	Format string
}

// Item is an expression whose value is shown.
type Item struct {
	Expr Expr
	// Source is the source text of the expression.
	Source string
	// As is the representation given after a colon: "str", "x".
	As string
}

// Param is an argument in a signature: its name and type.
type Param struct {
	Name string
	Type typeName
}

// ParseClauses parses the text that follows the name of a probe.
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
		p.next()
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

// parenthesized parses a list up to the closing parenthesis.
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

// param parses a parameter, as "const char *name", if the tokens start with one.
func (p *parser) param() (Param, bool) {
	start := p.at
	if t, ok := p.typeName(); ok && p.peek().kind == tokenName {
		return Param{p.next().text, t}, true
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
		t := p.next()
		if t.kind != tokenName {
			return item, fmt.Errorf("%w: a colon must be followed by str, x, d or u", ErrSyntax)
		}
		item.As = t.text
	}
	return item, nil
}

func (p *parser) format(text string, c *Clauses) error {
	c.Format = p.next().text
	for p.accept(",") {
		item, err := p.item(text)
		if err != nil {
			return err
		}
		c.Items = append(c.Items, item)
	}
	return nil
}

// isCondition reports whether the type of an expression is boolean.
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

// Resolve returns a variable with the type of the parameter. Without BTF only the basic types
// of C are known.
//
// Returns ErrType.
func (p *Param) Resolve(s *Scope) (Var, error) {
	t, err := p.Type.resolve(s.Types)
	if err != nil {
		return Var{}, fmt.Errorf("%w: argument %s: %w", ErrType, p.Name, err)
	}
	return Var{Type: t}, nil
}

// As returns the variable with the type of other.
func (v Var) As(other Var) Var {
	v.Type = other.Type
	return v
}

// IsName reports whether an expression consists only of the name.
func IsName(e Expr, name string) bool {
	n, ok := e.(*nameExpr)
	return ok && n.name == name
}
