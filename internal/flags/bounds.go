package flags

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// bounds restrict the values of a flag: the tags min, max and of.
type bounds struct {
	min, max reflect.Value // invalid without the tag
	allowed  []string      // the tag of
}

// newBounds parses the tags of a field. For a list, they apply to each element.
func newBounds(f reflect.StructField) (b bounds, err error) {
	t := f.Type
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	for tag, bound := range map[string]*reflect.Value{"min": &b.min, "max": &b.max} {
		text := f.Tag.Get(tag)
		if text == "" {
			continue
		}
		v := reflect.New(t).Elem()
		if err := setScalar(v, text); err != nil {
			return b, fmt.Errorf("tag %s: %w", tag, err)
		}
		if _, ok := compare(v, v); !ok {
			return b, fmt.Errorf("tag %s: values of type %s cannot be compared", tag, t)
		}
		*bound = v
	}
	if of := f.Tag.Get("of"); of != "" {
		b.allowed = strings.Split(of, ",")
	}
	return b, nil
}

// check returns an error with the allowed values if v is not within the bounds.
func (b *bounds) check(v reflect.Value) error {
	if b.min.IsValid() {
		if n, _ := compare(v, b.min); n < 0 {
			return fmt.Errorf("it must be %s", b)
		}
	}
	if b.max.IsValid() {
		if n, _ := compare(v, b.max); n > 0 {
			return fmt.Errorf("it must be %s", b)
		}
	}
	if b.allowed != nil && !slices.Contains(b.allowed, v.String()) {
		return fmt.Errorf("it must be %s", b)
	}
	return nil
}

// String returns the bounds as a part of a sentence, "at least 1", or "" if there are none.
func (b *bounds) String() string {
	switch {
	case b.allowed != nil:
		last := len(b.allowed) - 1
		return strings.TrimPrefix(strings.Join(b.allowed[:last], ", ")+" or "+b.allowed[last], " or ")
	case b.min.IsValid() && b.max.IsValid():
		return fmt.Sprintf("%v to %v", b.min, b.max)
	case b.min.IsValid():
		return fmt.Sprintf("at least %v", b.min)
	case b.max.IsValid():
		return fmt.Sprintf("at most %v", b.max)
	}
	return ""
}

// compare compares two numbers of the same type.
func compare(a, b reflect.Value) (n int, ok bool) {
	switch {
	case a.CanInt():
		return cmp.Compare(a.Int(), b.Int()), true
	case a.CanUint():
		return cmp.Compare(a.Uint(), b.Uint()), true
	case a.CanFloat():
		return cmp.Compare(a.Float(), b.Float()), true
	}
	return 0, false
}
