package tooltest

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corescope/corescope/internal/tool"
)

// Schema returns the compiled schema of the lines that the tool prints, run with args.
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

// validated is how many rows of a kind are held against the schema: thousands are
// alike.
const validated = 200

// validate holds what the tool printed against its schema.
func (res *Result) validate(t testing.TB, tl *tool.Tool, args []string) {
	t.Helper()
	schema := Schema(t, tl, args...)
	rows := append([]Row{res.Ready, res.Summary}, res.Events[:min(validated, len(res.Events))]...)
	rows = append(rows, res.Histograms[:min(validated, len(res.Histograms))]...)
	rows = append(rows, res.Rows[:min(validated, len(res.Rows))]...)
	rows = append(rows, res.Lost...)
	for _, row := range rows {
		if err := schema.Validate(map[string]any(row)); err != nil {
			t.Errorf("line is not as its schema says: %#v: %v", err, row)
		}
	}
}
