package value

import "strconv"

// Frame is one function of a stack. Without a Symbol only its Address is known.
type Frame struct {
	Symbol, Module string
	Offset         uint64 // from the start of the function
	Address        Address
}

// Stack is the functions that were called, the innermost first. Text shows a line for
// each below the row, CSV all in one cell, the outermost first, with semicolons between.
type Stack []Frame

// Absent reports that there are no frames.
func (v *Stack) Absent() bool { return len(*v) == 0 }

func (f *Frame) appendText(b []byte) []byte {
	if f.Symbol == "" {
		return f.Address.AppendText(append(b, "0x"...))
	}
	return AppendEscaped(b, f.Symbol)
}

// AppendLines appends the lines that are below the row in text.
func (v *Stack) AppendLines(b []byte) []byte {
	for i := range *v {
		f := &(*v)[i]
		b = f.appendText(append(b, "    "...))
		if f.Symbol != "" {
			b = strconv.AppendUint(append(b, "+0x"...), f.Offset, 16)
		}
		if f.Module != "" && f.Module != "[kernel]" {
			b = AppendEscaped(append(b, ' '), f.Module)
		}
		b = append(b, '\n')
	}
	return b
}

func (v *Stack) AppendText(b []byte) []byte {
	for i := len(*v) - 1; i >= 0; i-- {
		b = (*v)[i].appendText(b)
		if i > 0 {
			b = append(b, ';')
		}
	}
	return b
}

func (v *Stack) AppendJSON(b []byte) []byte {
	b = append(b, '[')
	for i := range *v {
		if i > 0 {
			b = append(b, ',')
		}
		b = (*v)[i].appendJSON(b)
	}
	return append(b, ']')
}

func (f *Frame) appendJSON(b []byte) []byte {
	b = append(b, '{')
	if f.Symbol != "" {
		b = AppendString(append(b, `"symbol":`...), f.Symbol)
		b = strconv.AppendUint(append(b, `,"offset":`...), f.Offset, 10)
		b = AppendString(append(b, `,"module":`...), f.Module)
		b = append(b, ',')
	}
	return append(f.Address.AppendJSON(append(b, `"address":`...)), '}')
}

// Any returns the names, and the addresses of what has none.
func (v *Stack) Any() any {
	names := make([]string, len(*v))
	for i := range *v {
		names[i] = string((*v)[i].appendText(nil))
	}
	return names
}

func (v *Stack) Schema() Schema {
	text := Schema{Type: "string"}
	return Schema{Type: "array", Items: &Schema{
		Type: "object",
		Properties: map[string]Schema{
			"symbol": text, "module": text, "address": text,
			"offset": {Type: "integer", Minimum: minimum(0), Description: "bytes from the start of the function"},
		},
		Required: []string{"address"},
	}}
}
