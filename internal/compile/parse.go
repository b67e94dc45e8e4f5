package compile

import (
	"fmt"
	"slices"
)

// Expr is an expression as it was written.
type Expr interface{ isExpr() }

type (
	// number is a constant; -1 is one too.
	numberExpr struct{ value uint64 }
	stringExpr struct{ value string }
	nameExpr   struct{ name string }
	unaryExpr  struct {
		op string
		x  Expr
	}
	binaryExpr struct {
		op   string
		x, y Expr
	}
	memberExpr struct {
		x     Expr
		name  string
		arrow bool
	}
	indexExpr struct{ x, index Expr }
	castExpr  struct {
		to typeName
		x  Expr
	}
	callExpr struct {
		name string
		args []Expr
	}
)

func (*numberExpr) isExpr() {}
func (*stringExpr) isExpr() {}
func (*nameExpr) isExpr()   {}
func (*unaryExpr) isExpr()  {}
func (*binaryExpr) isExpr() {}
func (*memberExpr) isExpr() {}
func (*indexExpr) isExpr()  {}
func (*castExpr) isExpr()   {}
func (*callExpr) isExpr()   {}

// typeName is a type as C writes it: its words, and how many pointers to it.
type typeName struct {
	words    []string
	pointers int
}

// depthMax bounds how deep expressions are nested.
const depthMax = 64

// parser reads tokens. It is at tokens[at].
type parser struct {
	tokens []token
	at     int
	depth  int
}

// Parse reads one expression, which is all of the text.
//
// Returns ErrSyntax.
func Parse(text string) (Expr, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	e, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	if p.peek().kind != tokenEnd {
		return nil, p.unexpected()
	}
	return e, nil
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != tokenEnd {
		p.at++
	}
	return t
}

func (p *parser) accept(op string) bool {
	if t := p.peek(); t.kind == tokenOperator && t.text == op {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(op string) error {
	if !p.accept(op) {
		return fmt.Errorf("%w: %q is missing: %w", ErrSyntax, op, p.unexpected())
	}
	return nil
}

func (p *parser) unexpected() error {
	t := p.peek()
	if t.kind == tokenEnd {
		return fmt.Errorf("%w: it ends too early", ErrSyntax)
	}
	return fmt.Errorf("%w: %q is not expected there", ErrSyntax, t.text)
}

// binding is how tightly operators bind, as in C.
var binding = map[string]int{
	"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6,
	"<": 7, "<=": 7, ">": 7, ">=": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}

// expression reads operands and the operators between them that bind tighter than min.
func (p *parser) expression(min int) (Expr, error) {
	if p.depth++; p.depth > depthMax {
		return nil, fmt.Errorf("%w: nested too deeply", ErrSyntax)
	}
	defer func() { p.depth-- }()
	x, err := p.unary()
	if err != nil {
		return nil, err
	}
	for {
		t := p.peek()
		b := binding[t.text]
		if t.kind != tokenOperator || b <= min {
			return x, nil
		}
		p.take()
		y, err := p.expression(b)
		if err != nil {
			return nil, err
		}
		x = &binaryExpr{t.text, x, y}
	}
}

func (p *parser) unary() (Expr, error) {
	t := p.peek()
	if t.kind == tokenOperator && slices.Contains([]string{"-", "!", "~", "*", "&"}, t.text) {
		p.take()
		if p.depth++; p.depth > depthMax {
			return nil, fmt.Errorf("%w: nested too deeply", ErrSyntax)
		}
		defer func() { p.depth-- }()
		x, err := p.unary()
		if err != nil {
			return nil, err
		}
		return &unaryExpr{t.text, x}, nil
	}
	x, err := p.primary()
	if err != nil {
		return nil, err
	}
	return p.postfix(x)
}

func (p *parser) primary() (Expr, error) {
	switch t := p.peek(); {
	case t.kind == tokenNumber:
		p.take()
		return &numberExpr{t.num}, nil
	case t.kind == tokenString:
		p.take()
		return &stringExpr{t.text}, nil
	case t.kind == tokenName:
		p.take()
		if p.accept("(") {
			return p.call(t.text)
		}
		return &nameExpr{t.text}, nil
	case p.accept("("):
		return p.parenthesis()
	}
	return nil, p.unexpected()
}

func (p *parser) call(name string) (Expr, error) {
	c := &callExpr{name: name}
	for !p.accept(")") {
		if len(c.args) > 0 {
			if err := p.expect(","); err != nil {
				return nil, err
			}
		}
		arg, err := p.expression(0)
		if err != nil {
			return nil, err
		}
		c.args = append(c.args, arg)
	}
	return c, nil
}

// parenthesis reads a cast, or an expression in parentheses, behind the first one.
func (p *parser) parenthesis() (Expr, error) {
	if to, ok := p.typeName(); ok {
		if err := p.expect(")"); err != nil {
			return nil, err
		}
		x, err := p.unary()
		if err != nil {
			return nil, err
		}
		return &castExpr{to, x}, nil
	}
	x, err := p.expression(0)
	if err != nil {
		return nil, err
	}
	return x, p.expect(")")
}

func (p *parser) postfix(x Expr) (Expr, error) {
	for {
		switch {
		case p.accept("->"), p.accept("."):
			arrow := p.tokens[p.at-1].text == "->"
			t := p.take()
			if t.kind != tokenName {
				return nil, fmt.Errorf("%w: the name of a field is missing", ErrSyntax)
			}
			x = &memberExpr{x, t.text, arrow}
		case p.accept("["):
			index, err := p.expression(0)
			if err != nil {
				return nil, err
			}
			if err := p.expect("]"); err != nil {
				return nil, err
			}
			x = &indexExpr{x, index}
		default:
			return x, nil
		}
	}
}
