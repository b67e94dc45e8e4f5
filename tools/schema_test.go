package tools_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// Rows of any content are as the schema says, with every column. Histograms have a
// test of their own in package tool.
func TestRowsMatchSchema(t *testing.T) {
	for _, tl := range tools.All() {
		t.Run(tl.Name, func(t *testing.T) {
			schema := tooltest.Schema(t, tl)
			facts, err := tl.Facts()
			if err != nil {
				t.Fatal(err)
			}
			if facts.Kind == "histogram" {
				return
			}
			r := rand.New(rand.NewPCG(1, 2))
			for range 300 {
				line := render(t, facts, r)
				row, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
				if err != nil {
					t.Fatalf("%#v: %s", err, line)
				}
				if err := schema.Validate(row); err != nil {
					t.Fatalf("%#v: %s", err, line)
				}
			}
		})
	}
}

// render fills the row at random and renders it.
func render(t *testing.T, f *tool.Facts, r *rand.Rand) []byte {
	t.Helper()
	for i := range f.Columns {
		fill(reflect.ValueOf(&f.Columns[i].Value).Elem(), r)
	}
	var out bytes.Buffer
	w := output.New(output.Options{Format: output.JSON, Columns: f.Columns, Out: &out})
	if err := w.Row(f.Kind); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// fill sets all that v leads to. What is empty and what is none turn up as well.
func fill(v reflect.Value, r *rand.Rand) {
	if v.CanAddr() {
		v = reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
	}
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		fill(v.Elem(), r)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), r)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), r)
		}
	case reflect.Slice:
		fillSlice(v, r)
	case reflect.String:
		v.SetString(string(randomBytes(r)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(r.NormFloat64() * 1e9)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> r.IntN(64))
	}
}

func fillSlice(v reflect.Value, r *rand.Rand) {
	if v.Type().Elem().Kind() != reflect.Uint8 || r.IntN(4) == 0 {
		v.SetZero()
		return
	}
	v.SetBytes(randomBytes(r))
}

func randomBytes(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(40))
	for i := range b {
		b[i] = byte(r.UintN(256))
	}
	return b
}
