package target

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Field is a field of the record of a tracepoint, from a line "field:TYPE NAME;	offset:N;	size:N;	signed:N;".
type Field struct {
	Kind, Name string
	// Elems is 0 for an array, otherwise -1. Length is the text of its number of elements.
	Elems        int
	Length       string
	Offset, Size int
	Signed       bool
}

// IsCommon reports whether all tracepoints have the field: 8 bytes that programs cannot access, and
// one more field on kernels with Debian's real-time patches.
func (f *Field) IsCommon() bool { return f.Offset < 8 || strings.HasPrefix(f.Name, "common_") }

var fieldLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*field:(.*?)\s*(\w+)(?:\[([^\]]*)\])?;\s*offset:(\d+);\s*size:(\d+);(?:\s*signed:(\d);)?`)
})

// ParseField parses a line of a tracepoint's format.
func ParseField(line string) (Field, bool) {
	m := fieldLine().FindStringSubmatch(line)
	if m == nil {
		return Field{}, false
	}
	f := Field{Kind: m[1], Name: m[2], Elems: -1, Signed: m[6] == "1"}
	// The pattern matches only digits.
	f.Offset, _ = strconv.Atoi(m[4])
	f.Size, _ = strconv.Atoi(m[5])
	if strings.Contains(m[0], "[") && m[3] != "" {
		f.Elems, f.Length = 0, m[3]
	}
	return f, true
}

// Fields returns the fields of a tracepoint's record, except those that all tracepoints have. tracefs
// describes them.
func (f *Finder) Fields(place *Place) ([]Field, error) {
	dir, err := f.TracingDir()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "events", place.Name, "format"))
	if err != nil {
		return nil, fmt.Errorf("read fields of %s: %w", place.Name, err)
	}
	var all []Field
	for line := range strings.Lines(string(text)) {
		if field, ok := ParseField(line); ok && !field.IsCommon() {
			all = append(all, field)
		}
	}
	return all, nil
}
