package tool

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/value"
)

// Schema returns the JSON Schema (draft 2020-12) of a line of --output json. It is a
// contract: a key is never taken away, nor given another type or meaning.
func (f *Facts) Schema() ([]byte, error) {
	rows := f.eventSchema()
	if f.Kind == kindHistogram {
		rows = f.histogramSchema()
	}
	known := map[string]any{
		"reasons": countsSchema(f.Lost), "counters": countsSchema(f.Counters),
		"stats": structSchema(reflect.TypeFor[Stats](), nil).schema(),
	}
	b, err := encode(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", f.Name + " --output json"},
		{"description", f.Summary + ". Each line is one of these objects. Required is what a line has without --columns."},
		{"oneOf", []object{
			typed("ready", structSchema(reflect.TypeFor[output.Ready](), known)),
			typed(f.Kind, rows),
			typed("lost", structSchema(reflect.TypeFor[output.Lost](), known)),
			typed("summary", structSchema(reflect.TypeFor[output.Summary](), known)),
			typed("explain", structSchema(reflect.TypeFor[Explanation](), known)),
		}},
	}, "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return b, nil
}

// SchemaOf returns the JSON Schema of an object that encoding/json makes of v, whose
// descriptions are the help tags of v's fields.
func SchemaOf(v any, title, description string) ([]byte, error) {
	b, err := encode(append(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}, {"description", description},
	}, structSchema(reflect.TypeOf(v), nil).schema()...), "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return b, nil
}

func (f *Facts) eventSchema() *record {
	r := &record{}
	for i := range f.Columns {
		c := &f.Columns[i]
		r.addColumn(c, slices.Contains(f.JSON, c.Key))
	}
	return r
}

// addColumn adds a column's key, and that of its bytes where they need not be UTF-8.
func (r *record) addColumn(c *column.Column, shown bool) {
	s := c.Schema()
	s.Description = c.Help
	_, optional := c.Value.(value.Optional)
	optional = optional || c.Off
	if len(c.Hooks) > 0 {
		r.add(c.Key, nullable(s, "null where this kernel has no way to the event"), shown && !optional)
	} else {
		r.add(c.Key, s, shown && !optional)
	}
	if _, ok := c.Value.(value.Exact); ok {
		r.add(c.Key+"_base64", base64Schema(c.Key, s), false)
	}
}

func base64Schema(key string, s value.Schema) object {
	text := object{{"type", "string"}, {"contentEncoding", "base64"}}
	help := member{"description", "the bytes of " + key + ", only where they are not UTF-8"}
	if s.Type == "array" {
		return object{{"type", "array"}, {"items", text}, help}
	}
	return append(text, help)
}

func (f *Facts) histogramSchema() *record {
	key := &record{}
	for i := range f.Keys {
		key.addColumn(&f.Keys[i], slices.Contains(f.Text, f.Keys[i].Key))
	}
	r := &record{}
	r.add("time", value.Schema{Type: "string", Format: "date-time", Description: "when it was read"}, true)
	r.add("key", key.schema(), true)
	r.add("unit", value.Schema{Type: "string", Enum: units(), Description: "unit of all that follows but the counts"}, true)
	for i := range f.Columns {
		c := &f.Columns[i]
		r.add(c.Key, statSchema(c), true)
	}
	r.add("buckets", object{{"type", "array"}, {"items", bucketSchema().schema()}}, true)
	return r
}

func units() []string {
	var names []string
	for _, u := range []histogram.Unit{histogram.Nanoseconds, histogram.Microseconds, histogram.Milliseconds, histogram.Values} {
		names = append(names, u.String())
	}
	return names
}

// nullable is the schema of a value that may be null, and when.
func nullable(s value.Schema, when string) object {
	o := object{{"type", []string{s.Type, "null"}}}
	if s.Minimum != nil {
		o = append(o, member{"minimum", *s.Minimum})
	}
	return append(o, member{"description", s.Description + "; " + when})
}

// statSchema is that of a number that is null in a histogram of nothing.
func statSchema(c *column.Column) object {
	s := c.Schema()
	if c.Key == "count" || c.Key == "sum" {
		return object{{"type", s.Type}, {"minimum", 0}, {"description", c.Help}}
	}
	return object{{"type", []string{s.Type, "null"}}, {"description", c.Help + "; null where there are no values"}}
}

func bucketSchema() *record {
	number := func(help string) value.Schema { return value.Schema{Type: "number", Description: help} }
	r := &record{}
	r.add("lo", number("least value that it counts"), true)
	r.add("hi", number("least value above those that it counts"), true)
	r.add("count", value.Schema{Type: "integer", Description: "values"}, true)
	return r
}
