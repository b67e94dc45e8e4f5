// Package column turns the fields of a row into columns.
//
// A field is a column when it has a json tag, which is its key:
//
//	Ret int32 `json:"ret" col:"RET,width=3,right" help:"what the call returned"`
//
//	json   the key, in snake_case, another for each column
//	col    header in text, then width=N (cells are padded to it), right (aligned),
//	       bare (above a histogram it stands without its name),
//	       extra (shown only when asked for), need=VAR (the BPF variable that must
//	       be true for the column to be filled), hook=A+B (the hooks that fill it: where
//	       a kernel lacks one of them, the column has no value)
//	help   the column's definition: clock, start and end event, context
//
// Embedded structs give their columns in their place. A column is bound to one
// row in memory: to show another row, overwrite that one.
package column

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/corescope/corescope/internal/value"
)

// ErrUnknown is returned for a column that the tool does not have.
var ErrUnknown = errors.New("no such column")

// Column is one column, bound to a row.
type Column struct {
	Key    string
	Header string
	Width  int
	Right  bool
	Bare   bool
	Extra  bool
	Need   string
	Hooks  []string
	Help   string
	// Lacking tells that this kernel lacks what fills the column, Off that this run does
	// not ask for it: then no row has it.
	Lacking, Off bool
	value.Value
}

// Of returns the columns of *row.
func Of(row any) ([]Column, error) {
	v := reflect.ValueOf(row)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("make columns of %T: not a pointer to a struct", row)
	}
	return appendFields(nil, v.Elem())
}

func appendFields(cols []Column, v reflect.Value) ([]Column, error) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		var err error
		switch {
		case f.Tag.Get("json") != "":
			cols, err = appendField(cols, f, v.Field(i))
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			cols, err = appendFields(cols, v.Field(i))
		}
		if err != nil {
			return nil, err
		}
	}
	return cols, nil
}

func appendField(cols []Column, f reflect.StructField, v reflect.Value) ([]Column, error) {
	// NewAt lets fields of unexported embedded structs be read as well.
	ptr := reflect.NewAt(f.Type, v.Addr().UnsafePointer()).Interface()
	val, err := value.Of(ptr)
	if err != nil {
		return nil, fmt.Errorf("column %s: %w", f.Name, err)
	}
	c := Column{Key: f.Tag.Get("json"), Help: f.Tag.Get("help"), Value: val}
	if !isKey(c.Key) || slices.Contains(Keys(cols), c.Key) {
		return nil, fmt.Errorf("column %s: key %q is not snake_case or not the only one", f.Name, c.Key)
	}
	if err := c.parse(f.Tag.Get("col")); err != nil {
		return nil, fmt.Errorf("column %s: %w", f.Name, err)
	}
	return append(cols, c), nil
}

// isKey tells the keys that --columns and --filter can name.
func isKey(s string) bool {
	rest := strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz_0123456789")
	return rest == "" && strings.IndexAny(s, "abcdefghijklmnopqrstuvwxyz") == 0
}

func (c *Column) parse(tag string) error {
	header, rest, _ := strings.Cut(tag, ",")
	c.Header = header
	if header == "" {
		c.Header = strings.ToUpper(c.Key)
	}
	c.Width = len(c.Header)
	for opt := range strings.SplitSeq(rest, ",") {
		name, arg, _ := strings.Cut(opt, "=")
		switch name {
		case "":
		case "right":
			c.Right = true
		case "bare":
			c.Bare = true
		case "extra":
			c.Extra = true
		case "need":
			c.Need = arg
		case "hook":
			c.Hooks = strings.Split(arg, "+")
		case "width":
			n, err := strconv.Atoi(arg)
			if err != nil {
				return fmt.Errorf("parse width: %w", err)
			}
			c.Width = n
		default:
			return fmt.Errorf("parse tag: unknown option %q", opt)
		}
	}
	return nil
}

// Absent reports whether the row has nothing in the column.
func (c *Column) Absent() bool {
	o, ok := c.Value.(value.Optional)
	return c.Off || ok && o.Absent()
}

// Select chooses columns by their keys. Words come from --columns: "a,b" shows
// just these, "+a" adds to the defaults, "all" is every column there is. No words
// give the defaults.
//
// Returns ErrUnknown.
func Select(cols []Column, defaults, words []string) ([]Column, error) {
	var keys []string
	for i, word := range words {
		add, ok := strings.CutPrefix(word, "+")
		if ok && i == 0 {
			keys = append(keys, defaults...)
		}
		if add == "all" {
			for _, c := range cols {
				keys = append(keys, c.Key)
			}
			continue
		}
		keys = append(keys, add)
	}
	if len(words) == 0 {
		keys = defaults
	}
	return pick(cols, keys)
}

func pick(cols []Column, keys []string) ([]Column, error) {
	var out []Column
	seen := map[string]bool{}
	for _, key := range keys {
		c := Find(cols, key)
		if c == nil {
			return nil, fmt.Errorf("column %q: %w (there are: %s)", key, ErrUnknown, strings.Join(Keys(cols), ", "))
		}
		if !seen[c.Key] {
			seen[c.Key] = true
			out = append(out, *c)
		}
	}
	return out, nil
}

// Find returns the column whose key is name, or else whose header is, or nil.
// Capitals do not matter.
func Find(cols []Column, name string) *Column {
	byKey := func(c Column) bool { return strings.EqualFold(c.Key, name) }
	byHeader := func(c Column) bool { return strings.EqualFold(c.Header, name) }
	for _, is := range []func(Column) bool{byKey, byHeader} {
		if i := slices.IndexFunc(cols, is); i >= 0 {
			return &cols[i]
		}
	}
	return nil
}

// Keys lists the keys of cols.
func Keys(cols []Column) []string {
	keys := make([]string, len(cols))
	for i, c := range cols {
		keys[i] = c.Key
	}
	return keys
}

// Standard lists the keys of the columns that are not extra.
func Standard(cols []Column) []string {
	var keys []string
	for _, c := range cols {
		if !c.Extra {
			keys = append(keys, c.Key)
		}
	}
	return keys
}
