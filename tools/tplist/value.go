package tplist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/value"
)

// argument is an argument, or a field of a tracepoint.
type argument struct {
	name, kind string
	// length is what follows the name of an array, such as [16].
	length string
	// offset is that of a field, or -1.
	offset int
	// location is that of an argument of a USDT probe, or "".
	location string
}

// arguments are the arguments in their order. They are nil if they are unknown.
type arguments []argument

func fieldsOf(all []target.Field) arguments {
	out := arguments{}
	for _, f := range all {
		a := argument{name: f.Name, kind: f.Kind, offset: f.Offset}
		if f.Elems >= 0 {
			a.length = "[" + f.Length + "]"
		}
		out = append(out, a)
	}
	return out
}

func params(all []btf.FuncParam) arguments {
	out := arguments{}
	for i, p := range all {
		a := argument{name: p.Name, kind: target.TypeName(p.Type), offset: -1}
		if a.kind == "void" && i == len(all)-1 {
			a.kind = "..."
		} else if a.name == "" {
			a.name = "arg" + strconv.Itoa(i+1)
		}
		out = append(out, a)
	}
	return out
}

// operands parses arguments of a USDT probe: SIZE@LOCATION, where a negative size is that of a signed
// type, and one with the suffix f that of a floating-point number.
func operands(all []string) arguments {
	out := arguments{}
	for i, text := range all {
		size, location, ok := strings.Cut(text, "@")
		if !ok {
			size, location = "8", text
		}
		out = append(out, argument{name: "arg" + strconv.Itoa(i+1), kind: sized(size), offset: -1, location: location})
	}
	return out
}

// sized returns the C type of a size in bytes.
func sized(text string) string {
	number, isFloat := strings.CutSuffix(text, "f")
	n, err := strconv.ParseInt(number, 10, 8)
	switch {
	case err != nil:
		return "unknown"
	case isFloat:
		return map[int64]string{4: "float", 8: "double"}[max(n, -n)]
	case n < 0:
		return fmt.Sprintf("int%d_t", -n*8)
	}
	return fmt.Sprintf("uint%d_t", n*8)
}

// declaration returns the argument in C syntax, untrusted bytes escaped.
func (a *argument) declaration() []byte {
	b := value.AppendEscaped(nil, a.kind)
	if a.name != "" && !strings.HasSuffix(a.kind, "*") {
		b = append(b, ' ')
	}
	return value.AppendEscaped(value.AppendEscaped(b, a.name), a.length)
}

func (v *arguments) Absent() bool { return *v == nil }

// AppendLines appends a line per argument.
func (v *arguments) AppendLines(b []byte) []byte {
	for i := range *v {
		a := &(*v)[i]
		b = append(append(b, "    "...), a.declaration()...)
		if a.location != "" {
			b = value.AppendEscaped(append(b, " at "...), a.location)
		}
		b = append(b, '\n')
	}
	return b
}

// AppendText appends the arguments as a list of parameters.
func (v *arguments) AppendText(b []byte) []byte {
	for i := range *v {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, (*v)[i].declaration()...)
	}
	return b
}

// AppendJSON appends an array of objects.
func (v *arguments) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i := range *v {
		a := &(*v)[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		if a.name != "" {
			b = append(value.AppendString(append(b, `"name":`...), a.name), ',')
		}
		b = value.AppendString(append(b, `"type":`...), a.kind+a.length)
		if a.offset >= 0 {
			b = strconv.AppendInt(append(b, `,"offset":`...), int64(a.offset), 10)
		}
		if a.location != "" {
			b = value.AppendMember(b, "location", a.location)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// Any returns the declarations.
func (v *arguments) Any() any {
	out := []string{}
	for i := range *v {
		out = append(out, string((*v)[i].declaration()))
	}
	return out
}

// Schema returns the schema of the array.
func (v *arguments) Schema() value.Schema {
	return value.Schema{Type: "array", Items: &value.Schema{Type: "object", Required: []string{"type"}, Properties: map[string]value.Schema{
		"name":     {Type: "string", Description: "name, as expressions of trace(8) use it; absent for variable arguments (...)"},
		"type":     {Type: "string", Description: "type in C syntax; of an argument of a USDT probe, an integer of its size, or unknown"},
		"offset":   {Type: "integer", Description: "offset of a field in the record of a tracepoint, in bytes"},
		"location": {Type: "string", Description: "register, memory or constant of an argument of a USDT probe at its first place, in the syntax of the assembler"},

		"location_base64": {Type: "string", Description: "the exact bytes of location in base64; present only if they are not UTF-8"},
	}}}
}

// place is a place of a USDT probe or function.
type place struct {
	offset   uint64
	operands []string
}

type places []place

func (v *places) Absent() bool { return *v == nil }

// AppendLines appends a line per place.
func (v *places) AppendLines(b []byte) []byte {
	for i := range *v {
		b = append((*v)[i].appendText(append(b, "    place "...)), '\n')
	}
	return b
}

func (p *place) appendText(b []byte) []byte {
	b = strconv.AppendUint(append(b, "0x"...), p.offset, 16)
	for _, operand := range p.operands {
		b = value.AppendEscaped(append(b, ' '), operand)
	}
	return b
}

// AppendText appends the places, separated by commas.
func (v *places) AppendText(b []byte) []byte {
	for i := range *v {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = (*v)[i].appendText(b)
	}
	return b
}

// AppendJSON appends an array of objects.
func (v *places) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i := range *v {
		p := &(*v)[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, `{"offset":`...), p.offset, 10)
		b = append(p.appendOperands(b), '}')
	}
	return append(b, ']')
}

// appendOperands appends the members "args", and "args_base64" if they are not UTF-8.
func (p *place) appendOperands(b []byte) []byte {
	if len(p.operands) == 0 {
		return b
	}
	list := value.List(strings.Join(p.operands, "\x00") + "\x00")
	b = list.AppendJSON(append(b, `,"args":`...))
	if !list.Valid() {
		b = list.AppendBase64(append(b, `,"args_base64":`...))
	}
	return b
}

// Any returns the text of each place.
func (v *places) Any() any {
	out := []string{}
	for i := range *v {
		out = append(out, string((*v)[i].appendText(nil)))
	}
	return out
}

// Schema returns the schema of the array.
func (v *places) Schema() value.Schema {
	return value.Schema{Type: "array", Items: &value.Schema{Type: "object", Required: []string{"offset"}, Properties: map[string]value.Schema{
		"offset": {Type: "integer", Description: "file offset in bytes"},
		"args":   {Type: "array", Items: &value.Schema{Type: "string"}, Description: "arguments of a USDT probe at this place, as in the file: SIZE@LOCATION"},

		"args_base64": {Type: "array", Items: &value.Schema{Type: "string"}, Description: "the exact bytes of args in base64; present only if they are not UTF-8"},
	}}}
}
