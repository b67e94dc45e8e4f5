package document

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/corescope/corescope/internal/output"
)

// UnionSchema returns the JSON Schema of a line of --output json that is valid for each of these
// command lines of one tool: it allows the rows of all of them, and requires the keys that all of
// them have. It returns an error if a key has different types in two of them.
func UnionSchema(all []*Tool) ([]byte, error) {
	var kinds []string
	rows := map[string]*record{}
	for _, t := range all {
		if rows[t.Kind] == nil {
			kinds, rows[t.Kind] = append(kinds, t.Kind), t.rowSchema()
			continue
		}
		if err := rows[t.Kind].merge(t.rowSchema()); err != nil {
			return nil, fmt.Errorf("merge schemas of %s: %w", t.Name, err)
		}
	}
	var lines []object
	for _, kind := range kinds {
		if kind != output.KindHistogram {
			rows[kind].required = nil // --columns can omit any key
		}
		lines = append(lines, typed(kind, rows[kind]))
	}
	return all[0].schemaOf("Each line is one of these objects, with any options. The options determine the keys of a row: "+
		"corescope schema "+all[0].Name+" OPTIONS prints the schema of one command line.", lines)
}

// merge adds the properties of another record. Keys that both require remain required.
func (r *record) merge(other *record) error {
	for _, m := range other.properties {
		i := slices.IndexFunc(r.properties, func(own member) bool { return own.key == m.key })
		if i < 0 {
			r.properties = append(r.properties, m)
			continue
		}
		if err := r.properties[i].merge(m.value); err != nil {
			return err
		}
	}
	r.required = slices.DeleteFunc(r.required, func(key string) bool { return !slices.Contains(other.required, key) })
	return nil
}

// merge merges the schema of a property with another one, which must be equal unless both are objects.
func (m *member) merge(other any) error {
	if own, ok := m.value.(*record); ok {
		return own.merge(other.(*record))
	}
	a, err := encode(m.value, "")
	if err != nil {
		return err
	}
	b, err := encode(other, "")
	if err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		return fmt.Errorf("key %s has schema %s with some options and %s with others", m.key, a, b)
	}
	return nil
}
