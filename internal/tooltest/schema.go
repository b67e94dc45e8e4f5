package tooltest

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corescope/corescope/internal/tool"
)

// Schema returns the compiled schema of the lines that the tool prints when it runs with args.
func Schema(t testing.TB, tl *tool.Tool, args ...string) *jsonschema.Schema {
	t.Helper()
	facts, err := tl.Facts(args...)
	if err != nil {
		t.Fatal(err)
	}
	text, err := facts.Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	if err := c.AddResource(tl.Name+".json", doc); err != nil {
		t.Fatal(err)
	}
	return c.MustCompile(tl.Name + ".json")
}

// validated is the maximum number of rows of each type that are validated against the schema,
// because further ones are similar.
const validated = 200

// validate validates the output of the tool against its schema.
func (res *Result) validate(t testing.TB, tl *tool.Tool, args []string) {
	t.Helper()
	schema := Schema(t, tl, args...)
	rows := append([]Row{res.Ready, res.Summary}, res.Events[:min(validated, len(res.Events))]...)
	rows = append(rows, res.Histograms[:min(validated, len(res.Histograms))]...)
	rows = append(rows, res.Rows[:min(validated, len(res.Rows))]...)
	rows = append(rows, res.Lost...)
	for _, row := range rows {
		if err := schema.Validate(map[string]any(row)); err != nil {
			t.Errorf("line does not match its schema: %#v: %v", err, row)
		}
	}
}
