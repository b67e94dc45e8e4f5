package document

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/value"
)

// Schema returns the JSON Schema (draft 2020-12) of a line of --output json, for a run with these
// options. It is a contract: keys are never removed and never change their type or meaning.
func (t *Tool) Schema() ([]byte, error) {
	return t.schemaOf("Each line is one of these objects. The required keys are those without --columns.",
		[]object{typed(t.Kind, t.rowSchema())})
}

func (t *Tool) rowSchema() *record {
	if t.Kind == output.KindHistogram {
		return t.histogramSchema()
	}
	return t.eventSchema()
}

// schemaOf returns the schema of a line of output. rows are the schemas of the rows.
func (t *Tool) schemaOf(description string, rows []object) ([]byte, error) {
	fields := map[string]any{
		"reasons": countsSchema(t.Lost), "counters": countsSchema(t.Counters),
		"stats": structSchema(t.Lines["stats"], nil).schema(),
	}
	lines := append([]object{typed("ready", structSchema(reflect.TypeFor[output.Ready](), fields))}, rows...)
	b, err := encode(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", t.Name + " --output json"},
		{"description", t.Summary + ". " + description},
		{"oneOf", append(lines,
			typed("lost", structSchema(reflect.TypeFor[output.Lost](), fields)),
			typed("summary", structSchema(reflect.TypeFor[output.Summary](), fields)),
			typed("explain", structSchema(t.Lines["explain"], fields)),
		)},
	}, "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return b, nil
}

// SchemaOf returns the JSON Schema of v as encoding/json encodes it. The descriptions are the help
// tags of v's fields.
func SchemaOf(v any, title, description string) ([]byte, error) {
	b, err := encode(append(object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", title}, {"description", description},
	}, structSchema(reflect.TypeOf(v), nil).schema()...), "  ")
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return b, nil
}

func (t *Tool) eventSchema() *record {
	r := &record{}
	for i := range t.Columns {
		c := &t.Columns[i]
		r.addColumn(c, slices.Contains(t.JSON, c.Key))
	}
	return r
}

// addColumn adds the key of a column, and KEY_base64 if its value can be other than UTF-8.
func (r *record) addColumn(c *column.Column, shown bool) {
	s := c.Schema()
	s.Description = c.Help
	_, optional := c.Value.(value.Optional)
	optional = optional || c.Off
	if len(c.Hooks) > 0 {
		r.add(c.Key, nullable(s, "null if the kernel does not support the hook"), shown && !optional)
	} else {
		r.add(c.Key, s, shown && !optional)
	}
	if _, ok := c.Value.(value.Exact); ok {
		r.add(c.Key+"_base64", base64Schema(c.Key, s), false)
	}
}

func base64Schema(key string, s value.Schema) object {
	text := object{{"type", "string"}, {"contentEncoding", "base64"}}
	help := member{"description", "the exact bytes of " + key + "; present only if they are not UTF-8"}
	if s.Type == "array" {
		return object{{"type", "array"}, {"items", text}, help}
	}
	return append(text, help)
}

func (t *Tool) histogramSchema() *record {
	key := &record{}
	for i := range t.Keys {
		key.addColumn(&t.Keys[i], slices.Contains(t.Text, t.Keys[i].Key))
	}
	r := &record{}
	r.add("time", value.Schema{Type: "string", Format: "date-time", Description: "end of the interval"}, true)
	r.add("key", key, true)
	r.add("unit", value.Schema{Type: "string", Enum: units(), Description: "unit of all values except counts"}, true)
	for i := range t.Columns {
		c := &t.Columns[i]
		r.add(c.Key, statSchema(c), true)
	}
	r.add("buckets", object{{"type", "array"}, {"items", bucketSchema().schema()}}, true)
	if t.Percentiles {
		r.add("percentiles", percentilesSchema(), true)
	}
	return r
}

func units() []string {
	var names []string
	for _, u := range []histogram.Unit{histogram.Nanoseconds, histogram.Microseconds, histogram.Milliseconds, histogram.Kilobytes, histogram.Values} {
		names = append(names, u.String())
	}
	return names
}

// nullable returns the schema of a value that can be null; when describes the condition.
func nullable(s value.Schema, when string) object {
	o := object{{"type", []string{s.Type, "null"}}}
	if s.Minimum != nil {
		o = append(o, member{"minimum", *s.Minimum})
	}
	return append(o, member{"description", s.Description + "; " + when})
}

// statSchema returns the schema of a statistic. All but count and sum are null without values.
func statSchema(c *column.Column) object {
	s := c.Schema()
	if c.Key == "count" || c.Key == "sum" {
		return object{{"type", s.Type}, {"minimum", 0}, {"description", c.Help}}
	}
	return object{{"type", []string{s.Type, "null"}}, {"description", c.Help + "; null if there are no values"}}
}

// percentilesSchema returns the schema of an object whose keys are the percentiles as selected.
func percentilesSchema() object {
	return object{
		{"type", "object"}, {"additionalProperties", object{{"type", []string{"number", "null"}}}},
		{"description", "the selected percentiles, in the unit, by their number as text; null if there are no values"},
	}
}

func bucketSchema() *record {
	number := func(help string) value.Schema { return value.Schema{Type: "number", Description: help} }
	r := &record{}
	r.add("lo", number("lower bound (inclusive)"), true)
	r.add("hi", number("upper bound (exclusive)"), true)
	r.add("count", value.Schema{Type: "integer", Description: "number of values"}, true)
	return r
}
