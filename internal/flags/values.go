package flags

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// field is the pflag.Value of a struct field.
type field struct {
	v      reflect.Value
	arg    string
	bounds bounds
	zero   bool // 0 is the same as no flag
	set    bool
	text   string // the value that is set, as on the command line
}

func valueOf(v reflect.Value, f reflect.StructField) (*field, error) {
	val := &field{v: v, arg: f.Tag.Get("arg"), zero: f.Tag.Get("zero") == "none"}
	if err := val.check(); err != nil {
		return nil, err
	}
	var err error
	val.bounds, err = newBounds(f)
	return val, err
}

func (f *field) check() error {
	if unmarshaler(f.v) != nil {
		return nil
	}
	t := f.v.Type()
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return nil
	}
	return fmt.Errorf("type %s is not supported for flags", f.v.Type())
}

// unmarshaler returns v as a TextUnmarshaler, or nil if it is not one.
func unmarshaler(v reflect.Value) encoding.TextUnmarshaler {
	u, _ := v.Addr().Interface().(encoding.TextUnmarshaler)
	return u
}

// String returns the value. pflag calls it for the default in the help.
func (f *field) String() string {
	if f.v.IsZero() {
		return ""
	}
	if f.v.Kind() != reflect.Slice {
		return fmt.Sprint(f.v.Interface())
	}
	var parts []string
	for i := range f.v.Len() {
		parts = append(parts, fmt.Sprint(f.v.Index(i).Interface()))
	}
	return strings.Join(parts, ",")
}

func (f *field) Type() string {
	switch {
	case f.v.Kind() == reflect.Bool, f.v.Type() == reflect.TypeFor[Count]():
		return "bool"
	case f.arg != "":
		return f.arg
	case f.v.Kind() == reflect.String:
		return "TEXT"
	}
	return "N"
}

// Set parses a value. Lists are separated by commas. The first call replaces the default of a list,
// further calls append to it. Other flags can be repeated only with the same value: whoever gives two
// disks expects both, and would see only one. A bool can be repeated, so that a script can override it.
func (f *field) Set(s string) error {
	if f.v.Kind() == reflect.Slice && unmarshaler(f.v) == nil {
		return f.setList(s)
	}
	before := f.v.Interface()
	if err := f.setValue(s); err != nil {
		return err
	}
	if f.set && f.v.Kind() != reflect.Slice && f.Type() != "bool" && !reflect.DeepEqual(before, f.v.Interface()) {
		return fmt.Errorf("it takes one value and was given before as %q: give it once", f.text)
	}
	f.set, f.text = true, s
	return nil
}

// setValue parses the value of a field that is no list, or is a list that parses itself.
func (f *field) setValue(s string) error {
	if f.zero && s == "0" {
		f.v.SetZero()
		return nil
	}
	if err := setScalar(f.v, s); err != nil {
		return err
	}
	return f.bounds.check(f.v)
}

func (f *field) setList(s string) error {
	if !f.set {
		f.v.SetZero()
		f.set = true
	}
	for part := range strings.SplitSeq(s, ",") {
		element := reflect.New(f.v.Type().Elem()).Elem()
		if err := setScalar(element, strings.TrimSpace(part)); err != nil {
			return err
		}
		if err := f.bounds.check(element); err != nil {
			return err
		}
		f.v.Set(reflect.Append(f.v, element))
	}
	return nil
}

func setScalar(v reflect.Value, s string) error {
	if u := unmarshaler(v); u != nil {
		return u.UnmarshalText([]byte(s))
	}
	switch v.Kind() {
	case reflect.String:
		if s == "" {
			return errors.New("the value is empty")
		}
		v.SetString(s)
		return nil
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		v.SetBool(b)
		if err != nil {
			return fmt.Errorf("%q is not true or false", s)
		}
		return nil
	}
	return setNumber(v, s)
}

func setNumber(v reflect.Value, s string) error {
	switch v.Kind() {
	case reflect.Float64:
		n, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return numError(s, "number", err)
		}
		v.SetFloat(n)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(s, 10, v.Type().Bits())
		if err != nil {
			return numError(s, "whole number", err)
		}
		v.SetInt(n)
	default:
		n, err := strconv.ParseUint(s, 10, v.Type().Bits())
		if err != nil {
			return numError(s, "non-negative whole number", err)
		}
		v.SetUint(n)
	}
	return nil
}

// numError returns an error for a number that cannot be parsed.
func numError(s, want string, err error) error {
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s is out of range", s)
	}
	return fmt.Errorf("%q is not a %s", s, want)
}

// Count is the number of times that a flag without a value is given: -vv.
type Count uint8

// UnmarshalText counts another flag.
func (c *Count) UnmarshalText(s []byte) error {
	if string(s) != "true" {
		return fmt.Errorf("%q: the flag takes no value", s)
	}
	*c = min(*c, math.MaxUint8-1) + 1
	return nil
}

// Duration is a positive duration: "2s", "1m30s", "250ms", or a number of seconds.
type Duration time.Duration

// UnmarshalText parses s.
func (d *Duration) UnmarshalText(s []byte) error {
	span, err := parseSpan(string(s))
	if err != nil {
		return err
	}
	if span <= 0 {
		return fmt.Errorf("%s is not greater than zero", s)
	}
	*d = Duration(span)
	return nil
}

func parseSpan(s string) (time.Duration, error) {
	span, err := time.ParseDuration(s)
	if err == nil {
		return span, nil
	}
	seconds, err := strconv.ParseFloat(s, 64)
	switch {
	case math.Abs(seconds) >= math.MaxInt64/1e9:
		return 0, fmt.Errorf("%s is out of range", s)
	case err != nil, math.IsNaN(seconds):
		return 0, fmt.Errorf("%q is not a duration: want 2s, 1m or a number of seconds", s)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// String returns the duration in Go's format, or "" if it is 0.
func (d Duration) String() string {
	if d == 0 {
		return ""
	}
	return time.Duration(d).String()
}

// Milliseconds is a duration: "10ms", "500us", or a number of milliseconds. In BPF programs its unit
// is ns.
type Milliseconds time.Duration

// UnmarshalText parses s.
func (d *Milliseconds) UnmarshalText(s []byte) error {
	span, err := parseUnits(s, time.Millisecond)
	if err != nil {
		return fmt.Errorf("%w: want 500us, 2s or a number of milliseconds", err)
	}
	*d = Milliseconds(span)
	return nil
}

// parseUnits parses a duration that is not negative: with a unit, or a number of the given unit.
func parseUnits(s []byte, unit time.Duration) (time.Duration, error) {
	span, err := time.ParseDuration(string(s))
	if n, isNumber := strconv.ParseFloat(string(s), 64); isNumber == nil && math.Abs(n) < math.MaxInt64/float64(unit) {
		span, err = time.Duration(n*float64(unit)), nil
	}
	if err != nil || span < 0 {
		return 0, fmt.Errorf("%q is not a duration", s)
	}
	return span, nil
}

// Variable returns the duration in ns.
func (d Milliseconds) Variable() any { return uint64(d) }

// String returns the duration in Go's format.
func (d Milliseconds) String() string { return time.Duration(d).String() }

// Microseconds is like [Milliseconds], but a number without a unit is a number of microseconds.
type Microseconds time.Duration

// UnmarshalText parses s.
func (d *Microseconds) UnmarshalText(s []byte) error {
	span, err := parseUnits(s, time.Microsecond)
	if err != nil {
		return fmt.Errorf("%w: want 10ms, 2s or a number of microseconds", err)
	}
	*d = Microseconds(span)
	return nil
}

// Variable returns the duration in ns.
func (d Microseconds) Variable() any { return uint64(d) }

// String returns the duration in Go's format.
func (d Microseconds) String() string { return time.Duration(d).String() }
