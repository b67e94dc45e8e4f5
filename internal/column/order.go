package column

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Order is the sort order of rows.
type Order struct {
	Column *Column
	// Least sorts in ascending order; the default is descending.
	Least bool
}

// NewOrder returns the order for a column given by key or header. Text columns sort in
// ascending order, others in descending order unless the name has the prefix "+".
//
// Returns ErrUnknown, and ErrOff for a column that would leave the rows in any order.
func NewOrder(cols []Column, word string) (Order, error) {
	name, least := strings.CutPrefix(word, "+")
	c := Find(cols, name)
	if c == nil {
		return Order{}, fmt.Errorf("column %q: %w (available: %s)", name, ErrUnknown, strings.Join(Keys(cols), ", "))
	}
	if c.Off {
		return Order{}, fmt.Errorf("column %q: %w", name, ErrOff)
	}
	return Order{c, least || c.isText()}, nil
}

func (c *Column) isText() bool {
	s := c.Schema()
	return s.Type == "string" && s.Format == ""
}

// Value returns the sort key of the bound row.
func (o Order) Value() any {
	if o.Column.Lacking || o.Column.Absent() {
		return zero(o.Column)
	}
	return o.Column.Any()
}

// Compare compares two values returned by [Order.Value]. The result is negative if a sorts
// before b.
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
