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
	if _, ok := f.v.Addr().Interface().(encoding.TextUnmarshaler); ok {
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

// String is the default, in the help.
func (f *field) String() string {
	if f.v.IsZero() {
		return ""
	}
	if f.v.Kind() == reflect.Slice {
		return strings.Trim(fmt.Sprint(f.v.Interface()), "[]")
	}
	return fmt.Sprint(f.v.Interface())
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

// Set reads one value; a list takes several between commas, and more each time.
func (f *field) Set(s string) error {
	if u, ok := f.v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(s))
	}
	if f.v.Kind() != reflect.Slice {
		return setScalar(f.v, s)
	}
	if !f.set {
		f.v.SetLen(0)
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
	var err error
	switch v.Kind() {
	case reflect.String:
		if s == "" {
			return errors.New("empty")
		}
		v.SetString(s)
	case reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(s)
		v.SetBool(b)
	case reflect.Float64:
		var n float64
		n, err = strconv.ParseFloat(s, 64)
		v.SetFloat(n)
	case reflect.Int, reflect.Int32, reflect.Int64:
		var n int64
		n, err = strconv.ParseInt(s, 10, v.Type().Bits())
		v.SetInt(n)
	default:
		var n uint64
		n, err = strconv.ParseUint(s, 10, v.Type().Bits())
		v.SetUint(n)
	}
	return numError(s, err)
}

// numError says what is wrong with a number in a user's words.
func numError(s string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%s is out of range", s)
	}
	return fmt.Errorf("%q is not a number", s)
}

// Duration is a span of time: "2s", "1m30s", "250ms", or a number of seconds. It is not
// negative.
type Duration time.Duration

// UnmarshalText reads s.
func (d *Duration) UnmarshalText(s []byte) error {
	text := string(s)
	span, err := time.ParseDuration(text)
	if err != nil {
		seconds, numErr := strconv.ParseFloat(text, 64)
		if numErr != nil {
			return fmt.Errorf("%q is not a time: write 2s, 1m or a number of seconds", text)
		}
		if math.IsNaN(seconds) || seconds >= math.MaxInt64/1e9 {
			return fmt.Errorf("%s is out of range", text)
		}
		span = time.Duration(seconds * float64(time.Second))
	}
	if span <= 0 {
		return fmt.Errorf("%s is not above zero", text)
	}
	*d = Duration(span)
	return nil
}

// String is the span as Go writes it.
func (d Duration) String() string {
	if d == 0 {
		return ""
	}
	return time.Duration(d).String()
}
