// Package column derives columns from the fields of a row struct.
//
// A field with a json tag is a column:
//
//	Ret int32 `json:"ret" col:"RET,width=3,right" help:"return value of the call"`
//
//	json   key of the column: snake_case, unique within the row
//	col    header in text output, followed by options:
//	       width=N   pad cells to N characters
//	       right     align right
//	       bare      print only the value, without the key, above a histogram
//	       extra     not shown by default
//	       need=VAR  BPF variable that enables collection of the column
//	       replace   replace the column with the same key in an embedded struct before it
//	       hook=A+B  hooks that fill the column; it has no value if the kernel lacks one
//	help   definition of the column: clock, start event, end event, context, unit
//
// Columns of embedded structs take the position of the struct. A column is bound to
// one row in memory: to render another row, overwrite that row.
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

// ErrUnknown is returned for a name that matches no column.
var ErrUnknown = errors.New("no such column")

// ErrOff is returned for a column that has no value in any row of this run.
var ErrOff = errors.New("no row of this run has a value in it; its definition in the manual page names what fills it")

// Column is a column bound to a row.
type Column struct {
	Key    string
	Header string
	Width  int
	Right  bool
	Bare   bool
	Extra  bool
	// Counter is set if the values of rows with equal other columns add up, also over intervals.
	Counter bool
	Need    string
	Hooks   []string
	Help    string
	// Lacking is set if the kernel lacks a hook that fills the column, Off if the options of
	// the run disable it. In both cases the column has no value in any row.
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
	// NewAt also gives access to fields of unexported embedded structs.
	ptr := reflect.NewAt(f.Type, v.Addr().UnsafePointer()).Interface()
	val, err := value.Of(ptr)
	if err != nil {
		return nil, fmt.Errorf("column %s: %w", f.Name, err)
	}
	c := Column{Key: f.Tag.Get("json"), Help: f.Tag.Get("help"), Value: val}
	replaces, err := c.parse(f.Tag.Get("col"))
	if err != nil {
		return nil, fmt.Errorf("column %s: %w", f.Name, err)
	}
	at := slices.Index(Keys(cols), c.Key)
	if !isKey(c.Key) || at >= 0 != replaces {
		return nil, fmt.Errorf("column %s: key %q is not snake_case, not unique, or replaces no column", f.Name, c.Key)
	}
	if replaces {
		cols[at] = c
		return cols, nil
	}
	return append(cols, c), nil
}

// isKey reports whether s is a valid key: snake_case, as --columns and --filter expect.
func isKey(s string) bool {
	rest := strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyz_0123456789")
	return rest == "" && strings.IndexAny(s, "abcdefghijklmnopqrstuvwxyz") == 0
}

// parse reads the tag, and reports whether the column replaces another one.
func (c *Column) parse(tag string) (replaces bool, err error) {
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
		case "counter":
			c.Counter = true
		case "replace":
			replaces = true
		case "need":
			c.Need = arg
		case "hook":
			c.Hooks = strings.Split(arg, "+")
		case "width":
			n, err := strconv.Atoi(arg)
			if err != nil {
				return false, fmt.Errorf("parse width: %w", err)
			}
			c.Width = n
		default:
			return false, fmt.Errorf("parse tag: unknown option %q", opt)
		}
	}
	return replaces, nil
}

// Absent reports whether the row has no value in the column.
func (c *Column) Absent() bool {
	o, ok := c.Value.(value.Optional)
	return c.Off || ok && o.Absent()
}

// Select returns the columns named by words, the list given to --columns: "a,b" selects
// exactly these, "+a" adds to the defaults, and "all" selects every column. Without
// words, Select returns the defaults.
//
// Returns ErrUnknown.
func Select(cols []Column, defaults, words []string) ([]Column, error) {
	var keys []string
	for i, word := range words {
		key, isAddition := strings.CutPrefix(word, "+")
		if isAddition && i == 0 {
			keys = append(keys, defaults...)
		}
		if key == "all" {
			for _, c := range cols {
				keys = append(keys, c.Key)
			}
			continue
		}
		keys = append(keys, key)
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
			return nil, fmt.Errorf("column %q: %w (available: %s)", key, ErrUnknown, strings.Join(Keys(cols), ", "))
		}
		if !seen[c.Key] {
			seen[c.Key] = true
			out = append(out, *c)
		}
	}
	return out, nil
}

// Find returns the column whose key is name, else the one whose header is name, else nil.
// It ignores case.
func Find(cols []Column, name string) *Column {
	byKey := func(c Column) bool { return strings.EqualFold(c.Key, name) }
	byHeader := func(c Column) bool { return strings.EqualFold(c.Header, name) }
	for _, match := range []func(Column) bool{byKey, byHeader} {
		if i := slices.IndexFunc(cols, match); i >= 0 {
			return &cols[i]
		}
	}
	return nil
}

// Keys returns the keys of cols.
func Keys(cols []Column) []string {
	keys := make([]string, len(cols))
	for i, c := range cols {
		keys[i] = c.Key
	}
	return keys
}

// Standard returns the keys of the columns that are not extra.
func Standard(cols []Column) []string {
	var keys []string
	for _, c := range cols {
		if !c.Extra {
			keys = append(keys, c.Key)
		}
	}
	return keys
}
