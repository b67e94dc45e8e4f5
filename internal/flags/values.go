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

	"github.com/spf13/pflag"
)

// field is the pflag.Value of a struct field of a plain kind.
type field struct {
	v   reflect.Value
	arg string
	set bool
}

func valueOf(v reflect.Value, arg string) (pflag.Value, error) {
	if p, ok := v.Addr().Interface().(pflag.Value); ok {
		return p, nil
	}
	f := &field{v: v, arg: arg}
	if err := f.check(); err != nil {
		return nil, err
	}
	return f, nil
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
	return fmt.Errorf("no flag can have type %s", f.v.Type())
}

// unmarshaler is v as what reads itself, or nil.
func unmarshaler(v reflect.Value) encoding.TextUnmarshaler {
	u, _ := v.Addr().Interface().(encoding.TextUnmarshaler)
	return u
}

// String is the default, in the help.
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
	case f.v.Kind() == reflect.Bool:
		return "bool"
	case f.arg != "":
		return f.arg
	case f.v.Kind() == reflect.String:
		return "TEXT"
	}
	return "N"
}

// Set reads one value; a list takes several between commas, and more each time. The
// first takes the place of the default.
func (f *field) Set(s string) error {
	if f.v.Kind() != reflect.Slice || unmarshaler(f.v) != nil {
		return setScalar(f.v, s)
	}
	if !f.set {
		f.v.SetZero()
		f.set = true
	}
	for part := range strings.SplitSeq(s, ",") {
		one := reflect.New(f.v.Type().Elem()).Elem()
		if err := setScalar(one, strings.TrimSpace(part)); err != nil {
			return err
		}
		f.v.Set(reflect.Append(f.v, one))
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
			return errors.New("it is empty")
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
			return numError(s, "whole number from 0 on", err)
		}
		v.SetUint(n)
	}
	return nil
}

// numError says what is wrong with a number in a user's words.
func numError(s, want string, err error) error {
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s is out of range", s)
	}
	return fmt.Errorf("%q is not a %s", s, want)
}

// Duration is a span of time: "2s", "1m30s", "250ms", or a number of seconds. It is not
// negative.
type Duration time.Duration

// UnmarshalText reads s.
func (d *Duration) UnmarshalText(s []byte) error {
	span, err := parseSpan(string(s))
	if err != nil {
		return err
	}
	if span <= 0 {
		return fmt.Errorf("%s is not above zero", s)
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
		return 0, fmt.Errorf("%q is not a time: write 2s, 1m or a number of seconds", s)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// String is the span as Go writes it.
func (d Duration) String() string {
	if d == 0 {
		return ""
	}
	return time.Duration(d).String()
}

// Milliseconds is a span of time: "10ms", "500us", or a number of milliseconds. To programs
// it is ns.
type Milliseconds time.Duration

// UnmarshalText reads s.
func (d *Milliseconds) UnmarshalText(s []byte) error {
	span, err := time.ParseDuration(string(s))
	if ms, isNumber := strconv.ParseFloat(string(s), 64); isNumber == nil && math.Abs(ms) < math.MaxInt64/1e6 {
		span, err = time.Duration(ms*float64(time.Millisecond)), nil
	}
	if err != nil || span < 0 {
		return fmt.Errorf("%q is not a time: write 500us, 2s or a number of milliseconds", s)
	}
	*d = Milliseconds(span)
	return nil
}

// Variable is the span in ns.
func (d Milliseconds) Variable() any { return uint64(d) }

// String is the span as Go writes it.
func (d Milliseconds) String() string { return time.Duration(d).String() }
