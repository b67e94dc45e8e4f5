package tools_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corescope/corescope/internal/document"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// TestRowsMatchSchema checks that rows with random contents and all columns match the schema, and have
// the exact bytes of all strings.
// Histograms are tested in package tool.
func TestRowsMatchSchema(t *testing.T) {
	// The tools escape other bytes before they store these texts.
	ascii := []string{"dnssnoop name", "mountsnoop call"}
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
				if key := inexact(row); key != "" && !slices.Contains(ascii, tl.Name+" "+key) {
					t.Fatalf("%s is not exact, and %s_base64 is missing: %s", key, key, line)
				}
			}
		})
	}
}

// inexact returns the key of a string or list of strings with U+FFFD, which replaces bytes that are not
// UTF-8, if the key for the exact bytes is missing.
func inexact(row any) string {
	members, _ := row.(map[string]any)
	for key, member := range members {
		if _, ok := members[key+"_base64"]; !ok && strings.Contains(fmt.Sprint(member), "\ufffd") {
			return key
		}
	}
	return ""
}

// TestSchemaHoldsForEveryCommandLine checks that the schema of a tool accepts what the schema of a
// run accepts, and requires nothing else: for each pair of flags, for the examples and with
// --columns.
func TestSchemaHoldsForEveryCommandLine(t *testing.T) {
	for _, tl := range tools.All() {
		t.Run(tl.Name, func(t *testing.T) {
			spec, err := tl.Object()
			if err != nil {
				t.Fatal(err)
			}
			once := *tl
			once.Object = func(...tool.Variants) (*ebpf.CollectionSpec, error) { return spec.Copy(), nil }
			text, err := once.Schema()
			if err != nil {
				t.Fatal(err)
			}
			all := lineSchemas(t, text)
			for _, args := range commandLines(t, &once) {
				facts, err := once.Facts(args...)
				if err != nil {
					continue // these flags cannot be combined
				}
				text, err := facts.Schema()
				if err != nil {
					t.Fatal(err)
				}
				for kind, line := range lineSchemas(t, text) {
					if all[kind] == nil {
						t.Errorf("%q: lines of type %s are missing", args, kind)
						continue
					}
					if err := holds(all[kind], line); err != nil {
						t.Errorf("%q: lines of type %s: %v", args, kind, err)
					}
				}
			}
		})
	}
}

// commandLines returns pairs of the tool's own boolean flags, one of which changes the schema by
// itself, the examples, and a selection of columns.
func commandLines(t *testing.T, tl *tool.Tool) [][]string {
	facts, err := tl.Facts()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := facts.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, f := range facts.Flags[0].Flags {
		if f.Long != "" && f.Arg == "" {
			flags = append(flags, "--"+f.Long)
		}
	}
	all := [][]string{nil, flags}
	for _, a := range flags {
		all = append(all, []string{a})
		if !changes(tl, a, plain) {
			continue
		}
		for _, b := range flags {
			all = append(all, []string{a, b})
		}
	}
	for _, example := range facts.Examples {
		all = append(all, tool.ExampleArgs(example))
	}
	if facts.Kind != "histogram" {
		last := facts.Columns[len(facts.Columns)-1].Key
		all = append(all, []string{"--columns", facts.Columns[0].Key}, []string{"--columns", last})
	}
	return all
}

// changes reports whether a flag changes the schema of a run. A flag that cannot be used alone may
// change it.
func changes(tl *tool.Tool, flag string, plain []byte) bool {
	facts, err := tl.Facts(flag)
	if err != nil {
		return true
	}
	schema, err := facts.Schema()
	return err != nil || !bytes.Equal(schema, plain)
}

// lineSchemas returns the schemas of lines by type.
func lineSchemas(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	var schema struct {
		OneOf []map[string]any `json:"oneOf"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, s := range schema.OneOf {
		kind := s["properties"].(map[string]any)["type"].(map[string]any)["const"].(string)
		out[kind] = s
	}
	return out
}

// holds reports whether all schemas accept every object that line accepts.
func holds(all, line map[string]any) error {
	mine, _ := all["properties"].(map[string]any)
	others, _ := line["properties"].(map[string]any)
	for key, other := range others {
		a, isObject := mine[key].(map[string]any)
		b := other.(map[string]any)
		switch {
		case !isObject:
			return fmt.Errorf("key %s is missing", key)
		case key == "key" && b["properties"] != nil:
			if err := holds(a, b); err != nil {
				return fmt.Errorf("key: %w", err)
			}
		case !reflect.DeepEqual(a, b):
			return fmt.Errorf("key %s is %v in the schema of the tool, %v in that of the run", key, a, b)
		}
	}
	for _, key := range all["required"].([]any) {
		if !slices.Contains(line["required"].([]any), key) {
			return fmt.Errorf("key %s is required by the schema of the tool, but not by that of the run", key)
		}
	}
	return nil
}

// render fills the row at random and renders it.
func render(t *testing.T, f *document.Tool, r *rand.Rand) []byte {
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

// fill sets all values reachable from v, including empty and absent ones.
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
