package fetch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/target"
)

// addRecord adds the fields of the record of a tracepoint, which tracefs describes.
func (f *Finder) addRecord(s *compile.Scope, place *target.Place) error {
	dir, err := f.TracingDir()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "events", place.Name, "format"))
	if err != nil {
		return fmt.Errorf("read fields of %s: %w", place.Name, err)
	}
	for line := range strings.Lines(string(text)) {
		field, ok := parseField(line)
		if !ok {
			continue
		}
		if v, ok := field.variable(f.Types); ok && !field.isCommon() {
			s.Vars[field.name] = v
		}
	}
	return nil
}

// field is a line "field:TYPE NAME;	offset:N;	size:N;	signed:N;".
type field struct {
	kind, name   string
	elems        int // of an array, or -1
	offset, size int
	signed       bool
}

// isCommon reports whether all tracepoints have the field: 8 bytes that programs cannot access, and
// one more field on kernels with Debian's real-time patches.
func (f *field) isCommon() bool { return f.offset < 8 || strings.HasPrefix(f.name, "common_") }

func parseField(line string) (field, bool) {
	m := regexp.MustCompile(`^\s*field:(.*?)\s*(\w+)(?:\[(\w*)\])?;\s*offset:(\d+);\s*size:(\d+);(?:\s*signed:(\d);)?`).FindStringSubmatch(line)
	if m == nil {
		return field{}, false
	}
	f := field{kind: m[1], name: m[2], elems: -1, signed: m[6] == "1"}
	// The pattern matches only digits.
	f.offset, _ = strconv.Atoi(m[4])
	f.size, _ = strconv.Atoi(m[5])
	if strings.Contains(m[0], "[") && m[3] != "" {
		f.elems = 0
	}
	return f, true
}

// variable returns the field as a variable, or false if it does not fit in a register.
func (f *field) variable(types *btf.Spec) (compile.Var, bool) {
	kind, isData := strings.CutPrefix(f.kind, "__data_loc ")
	kind, isRelative := strings.CutPrefix(kind, "__rel_loc ")
	elem := f.element(strings.TrimSpace(strings.TrimSuffix(kind, "[]")), types)
	switch {
	case isData:
		return compile.Located(&btf.Array{Type: elem}, f.offset, 0), true
	case isRelative:
		return compile.Located(&btf.Array{Type: elem}, f.offset, f.offset+4), true
	case f.elems >= 0:
		size, err := btf.Sizeof(elem)
		if err != nil || size == 0 {
			return compile.Var{}, false
		}
		return compile.Record(&btf.Array{Type: elem, Nelems: uint32(f.size / size)}, f.offset), true
	case f.size > 8 || f.size&(f.size-1) != 0:
		return compile.Var{}, false
	}
	return compile.Record(elem, f.offset), true
}

// element returns the type of the field or of its elements: the type of that name if it is known
// and not larger than a register, otherwise an integer of the field's size.
func (f *field) element(name string, types *btf.Spec) btf.Type {
	if t, err := compile.TypeByName(name, types); err == nil {
		if size, err := btf.Sizeof(t); err == nil && size > 0 && (size <= f.size || f.elems >= 0) {
			return t
		}
	}
	t := &btf.Int{Name: name, Size: uint32(min(f.size, 8))}
	if f.elems >= 0 {
		t.Size = 1
	}
	if f.signed {
		t.Encoding = btf.Signed
	}
	return t
}
