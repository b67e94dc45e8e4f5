package compile

import (
	"fmt"
	"slices"
	"strings"
)

// Clauses are the expressions that follow the name of a probe:
//
//	(dfd, filename:str) if dfd == -100       values and a condition
//	(retval) "%x", retval                    BCC: a condition that is not a comparison
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
	// isAlone means that the expression is the only one in its parentheses.
	isAlone bool
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
	first := -1 // the items before this one share the parentheses of the signature
	for p.accept("(") {
		if err := p.parenthesized(text, c); err != nil {
			return nil, err
		}
		if first < 0 && len(c.Params) > 0 {
			first = len(c.Items)
		}
	}
	listed := len(c.Items)
	if p.peek().kind == tokenString {
		if err := p.format(text, c); err != nil {
			return nil, err
		}
	}
	if err := c.takeConditions(first, listed); err != nil {
		return nil, err
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

// takeConditions makes items that are alone in parentheses conditions, as BCC does: those up to end if
// the format has verbs only for the items after it, as in (retval) "%x", retval, and without a format
// those from first on, if first is not negative: they follow a signature.
func (c *Clauses) takeConditions(first, end int) error {
	if c.Format != "" {
		first = 0
	}
	if first < 0 || c.Format != "" && c.Verbs() != len(c.Items)-end {
		return nil
	}
	var rest []Item
	for i, item := range c.Items {
		switch {
		case i >= first && i < end && item.As == "" && item.isAlone:
			c.Where = append(c.Where, item.Expr)
		case i < end && c.Format != "":
			return fmt.Errorf("%w: the format has no verb for the value %s in parentheses; to show it, add a verb; "+
				"a condition before a format is one expression, as in (A && B)", ErrSyntax, item.Source)
		default:
			rest = append(rest, item)
		}
	}
	c.Items = rest
	return nil
}

// ParseItems parses expressions with commas between them.
//
// Returns ErrSyntax.
func ParseItems(text string) ([]Item, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	for all := []Item{}; ; {
		item, err := p.item(text)
		if err != nil {
			return nil, err
		}
		if all = append(all, item); !p.accept(",") {
			if p.peek().kind != tokenEnd {
				return nil, p.unexpected()
			}
			return all, nil
		}
	}
}

// Verbs returns the number of verbs of the format.
func (c *Clauses) Verbs() int {
	n := 0
	for i := 0; i < len(c.Format)-1; i++ {
		if c.Format[i] != '%' {
			continue
		}
		if i++; c.Format[i] != '%' {
			n++
		}
	}
	return n
}

// parenthesized parses a list up to the closing parenthesis: a condition, or parameters and values.
func (p *parser) parenthesized(text string, c *Clauses) error {
	var items []Item
	n := 0
	for ; !p.accept(")"); n++ {
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
		items = append(items, item)
	}
	for _, item := range items {
		item.isAlone = n == 1
		switch filters := isCondition(item.Expr) && item.As == ""; {
		case filters && item.isAlone:
			c.Where = append(c.Where, item.Expr)
		case filters:
			return fmt.Errorf("%w: the condition %s is in a list of values; write it after the list: if %s; or write %s:d to show its value",
				ErrSyntax, item.Source, item.Source, item.Source)
		default:
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
	return p.typedefParam()
}

// typedefParam parses a parameter whose type is a typedef, as "gfp_t flags" or "u_int_t *n".
func (p *parser) typedefParam() (Param, bool) {
	start := p.at
	for p.peek().kind == tokenName && slices.Contains(qualifiers, p.peek().text) {
		p.next()
	}
	word := p.next()
	t := typeName{words: []string{word.text}}
	for strings.HasSuffix(word.text, "_t") && p.accept("*") {
		t.pointers++
	}
	if name := p.peek(); word.kind == tokenName && name.kind == tokenName {
		p.next()
		return Param{name.text, t}, true
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

// Cast returns the expression converted to a type, if the text is the name of one.
func Cast(kind string, e Expr) (Expr, error) {
	tokens, err := lex(kind)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	t, ok := p.typeName()
	if word := p.peek(); !ok && word.kind == tokenName {
		p.next()
		t, ok = typeName{words: []string{word.text}}, true
	}
	if !ok || p.peek().kind != tokenEnd {
		return nil, fmt.Errorf("%w: %q is not a type", ErrSyntax, kind)
	}
	return &castExpr{t, e}, nil
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
	v.Type, v.untyped = other.Type, false
	return v
}

// IsName reports whether an expression consists only of the name.
func IsName(e Expr, name string) bool {
	n, ok := e.(*nameExpr)
	return ok && n.name == name
}
