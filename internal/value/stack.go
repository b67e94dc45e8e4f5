package value

import (
	"path"
	"strconv"
)

// Frame is one function of a stack. Without a Symbol it is known where its code lies, as far
// as Module is, and Reason says why there is no name.
type Frame struct {
	Symbol, Module string
	// Offset is from the start of the function; without a Symbol it is the address in the
	// module, as debuggers take it.
	Offset uint64
	// Address is 0 where addresses of the same function are one frame; then the offset in
	// a function is not told either.
	Address Address
	BuildID string
	Reason  string
	// File and Line are where in the source it was, if that was asked for and is known.
	File string
	Line uint32
	// Inlined tells that the compiler has put the function into the next frame's.
	Inlined bool
	// How the frame was found on the stack, where that is told.
	How    string
	Kernel bool
}

// Stack is the functions that were called, the innermost first. Text shows a line for
// each below the row, CSV all in one cell, the outermost first, with semicolons between.
type Stack []Frame

// Absent reports that there are no frames.
func (v *Stack) Absent() bool { return len(*v) == 0 }

// AppendText appends the function and its line, or where the code lies that has no name.
func (f *Frame) AppendText(b []byte) []byte { return f.AppendLine(f.AppendName(b)) }

// AppendName appends the function, or where the code lies that has no name.
func (f *Frame) AppendName(b []byte) []byte {
	switch {
	case f.Symbol != "":
		return AppendEscaped(b, f.Symbol)
	case f.Module == "" && f.Address == 0:
		return append(b, "[unknown]"...)
	case f.Module == "" || f.Kernel:
		return f.Address.AppendText(append(b, "0x"...))
	}
	b = AppendEscaped(b, f.Module)
	return strconv.AppendUint(append(b, "+0x"...), f.Offset, 16)
}

// AppendLine appends the place in the source, if it is known.
func (f *Frame) AppendLine(b []byte) []byte {
	if f.File == "" {
		return b
	}
	b = AppendEscaped(append(b, ' '), path.Base(f.File))
	return strconv.AppendUint(append(b, ':'), uint64(f.Line), 10)
}

// AppendReason appends why there is no name, in brackets.
func (f *Frame) AppendReason(b []byte) []byte {
	if f.Symbol != "" || f.Reason == "" {
		return b
	}
	b = append(append(b, " ("...), f.Reason...)
	if f.BuildID != "" {
		b = append(append(b, ", build-id "...), f.BuildID...)
	}
	return append(b, ')')
}

// AppendLines appends the lines that are below the row in text.
func (v *Stack) AppendLines(b []byte) []byte {
	for i := range *v {
		f := &(*v)[i]
		b = f.AppendName(append(b, "    "...))
		if f.Symbol != "" && f.Address != 0 {
			b = strconv.AppendUint(append(b, "+0x"...), f.Offset, 16)
		}
		if f.Symbol != "" && f.Module != "" && f.Module != "[kernel]" {
			b = AppendEscaped(append(b, ' '), f.Module)
		}
		b = append(f.AppendLine(b), '\n')
	}
	return b
}

func (v *Stack) AppendText(b []byte) []byte {
	for i := len(*v) - 1; i >= 0; i-- {
		b = (*v)[i].AppendText(b)
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
		b = appendMember(b, "symbol", f.Symbol)
	}
	if f.Symbol != "" && f.Address != 0 || f.Symbol == "" && f.Module != "" && !f.Kernel {
		b = strconv.AppendUint(append(appendComma(b), `"offset":`...), f.Offset, 10)
	}
	if f.Module != "" && (f.Symbol != "" || !f.Kernel) {
		b = appendMember(b, "module", f.Module)
	}
	if f.Address != 0 {
		b = f.Address.AppendJSON(append(appendComma(b), `"address":`...))
	}
	if f.BuildID != "" {
		b = appendMember(b, "build_id", f.BuildID)
	}
	if f.File != "" {
		b = appendMember(b, "file", f.File)
		b = strconv.AppendUint(append(b, `,"line":`...), uint64(f.Line), 10)
	}
	if f.Inlined {
		b = append(b, `,"inlined":true`...)
	}
	if f.Symbol == "" && f.Reason != "" {
		b = appendMember(b, "reason", f.Reason)
	}
	if f.How != "" {
		b = appendMember(b, "how", f.How)
	}
	return append(b, '}')
}

func appendMember(b []byte, key, text string) []byte {
	b = append(append(appendComma(b), '"'), key...)
	return AppendString(append(b, `":`...), text)
}

// appendComma appends one behind a member, and none where the object begins.
func appendComma(b []byte) []byte {
	if b[len(b)-1] == '{' {
		return b
	}
	return append(b, ',')
}

// Any returns the names, and the addresses of what has none.
func (v *Stack) Any() any {
	names := make([]string, len(*v))
	for i := range *v {
		names[i] = string((*v)[i].AppendText(nil))
	}
	return names
}

func (v *Stack) Schema() Schema {
	text := func(help string) Schema { return Schema{Type: "string", Description: help} }
	return Schema{Type: "array", Items: &Schema{
		Type: "object",
		Properties: map[string]Schema{
			"symbol": text("the function, absent where it has no name that is known"), "module": text("the file, or the part of the kernel in brackets"),
			"address":  text("as it was on the stack; absent where the addresses of a function are one frame"),
			"offset":   {Type: "integer", Minimum: minimum(0), Description: "bytes from the start of the function, absent with the address; without symbol the address in the module"},
			"file":     text("of the source, with --lines where the debugging information tells"),
			"line":     {Type: "integer", Minimum: minimum(0), Description: "in that file"},
			"inlined":  {Type: "boolean", Description: "true for a function that stands in the next frame's, with --inlines"},
			"build_id": text("of the module"), "reason": text("why there is no symbol"),
			"how": text("how the frame of a process was found, with the address: fp, by a frame pointer; eh, by the file's .eh_frame; go, by the tables of a Go program; signal, from what the kernel saved for a signal's handler; entry, as the caller of a function that has just begun"),
		},
	}}
}

// Trace is a stack that rows share: two are equal if they are the same one in memory. The
// zero Trace is no stack.
type Trace struct{ stack *Stack }

// NewTrace returns a trace of that stack, which is not changed any more.
func NewTrace(s Stack) Trace { return Trace{&s} }

// Frames are those of the stack, the innermost first.
func (v *Trace) Frames() Stack { return *v.all() }

func (v *Trace) all() *Stack {
	if v.stack == nil {
		return new(Stack)
	}
	return v.stack
}

func (v *Trace) Absent() bool                { return len(*v.all()) == 0 }
func (v *Trace) AppendLines(b []byte) []byte { return v.all().AppendLines(b) }
func (v *Trace) AppendText(b []byte) []byte  { return v.all().AppendText(b) }
func (v *Trace) AppendJSON(b []byte) []byte  { return v.all().AppendJSON(b) }
func (v *Trace) Any() any                    { return v.all().Any() }
func (v *Trace) Schema() Schema              { return v.all().Schema() }
