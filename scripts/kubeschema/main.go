// Command kubeschema writes JSON schemas of Kubernetes objects for kubeconform, one file per kind, from
// the OpenAPI document of the Kubernetes sources:
//
//	kubeschema api/openapi-spec/swagger.json DIRECTORY
//
// The schemas refuse members that do not exist.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: kubeschema SWAGGER DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "kubeschema:", err)
		os.Exit(1)
	}
}

// definition is the schema of a type.
type definition map[string]any

func run(swagger, dir string) error {
	text, err := os.ReadFile(swagger)
	if err != nil {
		return fmt.Errorf("read definitions: %w", err)
	}
	var doc struct {
		Definitions map[string]definition `json:"definitions"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("decode definitions: %w", err)
	}
	for _, d := range doc.Definitions {
		if d["properties"] != nil {
			d["additionalProperties"] = false
		}
		if d["format"] == "int-or-string" {
			delete(d, "type")
			d["oneOf"] = []any{map[string]string{"type": "string"}, map[string]string{"type": "integer"}}
		}
	}
	for name, d := range doc.Definitions {
		if err := writeKinds(dir, name, d, doc.Definitions); err != nil {
			return err
		}
	}
	return nil
}

// writeKinds writes a file for each kind that the type is.
func writeKinds(dir, name string, d definition, all map[string]definition) error {
	kinds, _ := d["x-kubernetes-group-version-kind"].([]any)
	if len(kinds) != 1 { // the others are types of many groups, such as DeleteOptions
		return nil
	}
	gvk, _ := kinds[0].(map[string]any)
	group, _, _ := strings.Cut(fmt.Sprint(gvk["group"]), ".")
	parts := []string{fmt.Sprint(gvk["kind"]), group, fmt.Sprint(gvk["version"])}
	if group == "" {
		parts = []string{parts[0], parts[2]}
	}
	schema := map[string]any{"$ref": "#/definitions/" + name, "definitions": all}
	text, err := json.Marshal(schema)
	if err != nil {
		return fmt.Errorf("encode schema of %s: %w", name, err)
	}
	path := filepath.Join(dir, strings.ToLower(strings.Join(parts, "-"))+".json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write schema: %w", err)
	}
	return nil
}
