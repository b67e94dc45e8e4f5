package column

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Order is what rows are sorted by.
type Order struct {
	Column *Column
	// Least puts the least first, else numbers and times begin with the greatest, and
	// texts with what comes last in the alphabet.
	Least bool
}

// NewOrder finds the column by its key or header. "+" before it puts the least first,
// as it is with texts by themselves.
//
// Returns ErrUnknown.
func NewOrder(cols []Column, word string) (Order, error) {
	name, least := strings.CutPrefix(word, "+")
	c := Find(cols, name)
	if c == nil {
		return Order{}, fmt.Errorf("column %q: %w (there are: %s)", name, ErrUnknown, strings.Join(Keys(cols), ", "))
	}
	return Order{c, least || c.isText()}, nil
}

func (c *Column) isText() bool {
	s := c.Schema()
	return s.Type == "string" && s.Format == ""
}

// Value is what the row that the column is bound to is sorted by.
func (o Order) Value() any {
	if o.Column.Lacking || o.Column.Absent() {
		return zero(o.Column)
	}
	return o.Column.Any()
}

// Compare compares two of these values: negative where a comes first.
func (o Order) Compare(a, b any) int {
	n := compare(a, b)
	if o.Least {
		return n
	}
	return -n
}

func compare(a, b any) int {
	switch a := a.(type) {
	case int:
		return cmp.Compare(a, b.(int))
	case float64:
		return cmp.Compare(a, b.(float64))
	case string:
		return strings.Compare(a, b.(string))
	case time.Time:
		return a.Compare(b.(time.Time))
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}
