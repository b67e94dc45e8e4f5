package compile

import (
	"fmt"
	"slices"
	"strings"
)

// Expr is a parsed expression.
type Expr interface{ isExpr() }

type (
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

// typeName is the name of a C type: its words and the number of asterisks.
type typeName struct {
	words    []string
	pointers int
}

// depthMax is the maximum depth of nested expressions.
const depthMax = 64

// parser parses tokens. The next token is tokens[at].
type parser struct {
	tokens []token
	at     int
	depth  int
}

// Parse parses an expression.
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

func (p *parser) next() token {
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
		return fmt.Errorf("%w: missing %q: %w", ErrSyntax, op, p.unexpected())
	}
	return nil
}

func (p *parser) unexpected() error {
	t := p.peek()
	if t.kind == tokenEnd {
		return fmt.Errorf("%w: unexpected end of expression", ErrSyntax)
	}
	return fmt.Errorf("%w: unexpected %q", ErrSyntax, t.text)
}

// precedence is the precedence of binary operators, as in C.
var precedence = map[string]int{
	"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6,
	"<": 7, "<=": 7, ">": 7, ">=": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}

// expression parses operands and binary operators of a precedence greater than min.
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
		prec := precedence[t.text]
		if t.kind != tokenOperator || prec <= min {
			return x, nil
		}
		p.next()
		y, err := p.expression(prec)
		if err != nil {
			return nil, err
		}
		x = &binaryExpr{t.text, x, y}
	}
}

func (p *parser) unary() (Expr, error) {
	t := p.peek()
	if t.kind == tokenOperator && slices.Contains([]string{"-", "!", "~", "*", "&"}, t.text) {
		p.next()
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
		p.next()
		return &numberExpr{t.num}, nil
	case t.kind == tokenString:
		p.next()
		return &stringExpr{t.text}, nil
	case t.kind == tokenName:
		p.next()
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

// parenthesis parses a cast or a parenthesized expression, after the opening parenthesis.
func (p *parser) parenthesis() (Expr, error) {
	if to, ok := p.castType(); ok {
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

// castType parses the type of a cast. The name of a typedef that is not listed in ints is a type if
// the parenthesis would be superfluous otherwise: before an operand, or if the name ends in _t.
func (p *parser) castType() (typeName, bool) {
	if to, ok := p.typeName(); ok {
		return to, true
	}
	start := p.at
	t := p.peek()
	if t.kind != tokenName {
		return typeName{}, false
	}
	p.next()
	to := typeName{words: []string{t.text}}
	for p.accept("*") {
		to.pointers++
	}
	if after := p.tokens[min(p.at+1, len(p.tokens)-1)]; p.peek().text == ")" && p.peek().kind == tokenOperator {
		isOperand := after.kind == tokenName && after.text != "if" || after.kind == tokenNumber || after.kind == tokenOperator && after.text == "("
		isSigned := strings.HasSuffix(t.text, "_t") && after.kind == tokenOperator && strings.Contains("-~!*&", after.text)
		if isOperand || isSigned {
			return to, true
		}
	}
	p.at = start
	return typeName{}, false
}

func (p *parser) postfix(x Expr) (Expr, error) {
	for {
		switch {
		case p.accept("->"), p.accept("."):
			arrow := p.tokens[p.at-1].text == "->"
			t := p.next()
			if t.kind != tokenName {
				return nil, fmt.Errorf("%w: missing member name", ErrSyntax)
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
		case p.accept("@"):
			// BCC's arg2@user. Reads find out by themselves where an address is: none is valid in
			// both address spaces.
			if t := p.next(); t.kind != tokenName || t.text != "user" && t.text != "kernel" {
				return nil, fmt.Errorf("%w: @ must be followed by user or kernel", ErrSyntax)
			}
		default:
			return x, nil
		}
	}
}
