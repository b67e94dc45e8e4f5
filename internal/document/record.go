package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// object is a JSON object whose keys keep their order.
type object []member

type member struct {
	key   string
	value any
}

// MarshalJSON returns the object.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	for i, m := range o {
		sep := ','
		if i == 0 {
			sep = '{'
		}
		val, err := encode(m.value, "")
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%c%q:%s", sep, m.key, val)
	}
	if len(o) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode returns the JSON encoding of v. Unlike json.Marshal it does not escape <, > and &.
func encode(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// record is the schema of an object under construction.
type record struct {
	properties object
	required   []string
}

func (r *record) add(key string, schema any, required bool) {
	r.properties = append(r.properties, member{key, schema})
	if required {
		r.required = append(r.required, key)
	}
}

// MarshalJSON returns the schema.
func (r *record) MarshalJSON() ([]byte, error) { return r.schema().MarshalJSON() }

// schema returns the schema of an object that has these keys and no others.
func (r *record) schema() object {
	return object{
		{"type", "object"}, {"properties", r.properties},
		{"required", append([]string{}, r.required...)}, {"additionalProperties", false},
	}
}

// typed returns the schema of a line whose key "type" has the value name.
func typed(name string, r *record) object {
	all := &record{required: append([]string{"type"}, r.required...)}
	all.properties = append(object{{"type", object{{"const", name}}}}, r.properties...)
	return all.schema()
}

// structSchema returns the schema of a struct as encoding/json encodes it. Help tags become
// descriptions. fields has the schemas of the fields, by key, that their types do not determine. The
// field "type" is omitted: see typed.
func structSchema(t reflect.Type, fields map[string]any) *record {
	r := &record{}
	for i := range t.NumField() {
		f := t.Field(i)
		key, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "type" || !f.IsExported() {
			continue
		}
		schema := fields[key]
		if schema == nil {
			schema = typeSchema(f.Type)
		}
		if help := f.Tag.Get("help"); help != "" {
			if o, ok := schema.(object); ok {
				schema = append(slices.Clip(o), member{"description", help})
			}
		}
		r.add(key, schema, opts == "")
	}
	return r
}

func typeSchema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}
	case t.Kind() == reflect.Pointer:
		return typeSchema(t.Elem())
	case t.Kind() == reflect.Bool:
		return object{{"type", "boolean"}}
	case t.Kind() == reflect.Int:
		return object{{"type", "integer"}}
	case t.Kind() == reflect.String:
		return object{{"type", "string"}}
	case t.Kind() == reflect.Float64:
		return object{{"type", "number"}}
	case t.Kind() == reflect.Uint64:
		return object{{"type", "integer"}, {"minimum", 0}}
	case t.Kind() == reflect.Slice:
		return object{{"type", "array"}, {"items", typeSchema(t.Elem())}}
	case t.Kind() == reflect.Struct:
		return structSchema(t, nil).schema()
	}
	return object{}
}

// countsSchema returns the schema of an object of counters. Names other than the given ones are allowed.
func countsSchema(names []string) object {
	count := object{{"type", "integer"}, {"minimum", 0}}
	properties := object{}
	for _, name := range names {
		properties = append(properties, member{name, count})
	}
	return object{{"type", "object"}, {"properties", properties}, {"additionalProperties", count}}
}
