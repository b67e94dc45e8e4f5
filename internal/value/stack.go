package value

import (
	"path"
	"strconv"
)

// Frame is one frame of a stack trace. If Symbol is empty, Module and Offset locate the
// code, as far as they are known, and Reason explains why there is no symbol.
type Frame struct {
	Symbol, Module string
	// Offset is relative to the start of the function; without a Symbol it is the address in
	// the module, as debuggers use it.
	Offset uint64
	// Address is 0 if the addresses within a function are merged into one frame; then
	// Offset within a function is not shown either.
	Address Address
	BuildID string
	Reason  string
	// File and Line are the position in the source, if requested and known.
	File string
	Line uint32
	// Inlined is set if the compiler has inlined the function into that of the next frame.
	Inlined bool
	// How is the method by which the frame was unwound, if requested.
	How    string
	Kernel bool
}

// Stack is a stack trace, innermost frame first. Text output prints one line per frame
// below the row. CSV has one cell with the outermost frame first, separated by semicolons.
type Stack []Frame

// Absent reports whether there are no frames.
func (v *Stack) Absent() bool { return len(*v) == 0 }

// AppendText appends the name, as [Frame.AppendName] does, and the source line.
func (f *Frame) AppendText(b []byte) []byte { return f.AppendLine(f.AppendName(b)) }

// AppendName appends the symbol, or the location of code without a symbol.
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

// Name returns what [Frame.AppendName] appends, without escapes.
func (f *Frame) Name() Name {
	switch {
	case f.Symbol != "":
		return Name(f.Symbol)
	case f.Module == "" || f.Kernel:
		return Name(f.AppendName(nil))
	}
	return Name(strconv.AppendUint([]byte(f.Module+"+0x"), f.Offset, 16))
}

// AppendLine appends the source file and line, if known.
func (f *Frame) AppendLine(b []byte) []byte {
	if f.File == "" {
		return b
	}
	b = AppendEscaped(append(b, ' '), path.Base(f.File))
	return strconv.AppendUint(append(b, ':'), uint64(f.Line), 10)
}

// AppendReason appends, in parentheses, the reason why there is no symbol.
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

// AppendLines appends the lines that text output prints below the row.
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
		b = AppendMember(b, "symbol", f.Symbol)
	}
	if f.Symbol != "" && f.Address != 0 || f.Symbol == "" && f.Module != "" && !f.Kernel {
		b = strconv.AppendUint(append(appendComma(b), `"offset":`...), f.Offset, 10)
	}
	if f.Module != "" && (f.Symbol != "" || !f.Kernel) {
		b = AppendMember(b, "module", f.Module)
	}
	if f.Address != 0 {
		b = f.Address.AppendJSON(append(appendComma(b), `"address":`...))
	}
	if f.BuildID != "" {
		b = AppendMember(b, "build_id", f.BuildID)
	}
	if f.File != "" {
		b = AppendMember(b, "file", f.File)
		b = strconv.AppendUint(append(b, `,"line":`...), uint64(f.Line), 10)
	}
	if f.Inlined {
		b = append(b, `,"inlined":true`...)
	}
	if f.Symbol == "" && f.Reason != "" {
		b = AppendMember(b, "reason", f.Reason)
	}
	if f.How != "" {
		b = AppendMember(b, "how", f.How)
	}
	return append(b, '}')
}

// Any returns the text of each frame.
func (v *Stack) Any() any {
	names := make([]string, len(*v))
	for i := range *v {
		names[i] = string((*v)[i].AppendText(nil))
	}
	return names
}

func (v *Stack) Schema() Schema {
	text := func(help string) Schema { return Schema{Type: "string", Description: help} }
	exact := func(key string) Schema {
		return text("the exact bytes of " + key + " in base64; present only if they are not UTF-8")
	}
	return Schema{Type: "array", Items: &Schema{
		Type: "object",
		Properties: map[string]Schema{
			"symbol":  text("name of the function; absent if unknown"),
			"module":  text("file; the kernel or a kernel module in brackets"),
			"address": text("address on the stack; absent if the addresses within a function are merged"),
			"offset": {Type: "integer", Minimum: minimum(0), Description: "offset from the start of the function in bytes, " +
				"absent if address is; without symbol the address in the module"},
			"file":     text("source file, with --lines, if debugging information is available"),
			"line":     {Type: "integer", Minimum: minimum(0), Description: "line in the source file"},
			"inlined":  {Type: "boolean", Description: "true if the function is inlined into that of the next frame, with --inlines"},
			"build_id": text("build-id of the module"),
			"reason":   text("reason why there is no symbol"),

			"symbol_base64": exact("symbol"), "module_base64": exact("module"), "file_base64": exact("file"),
			"how": text("how the user frame was unwound, present with address: fp, frame pointer; eh, .eh_frame of the file; " +
				"go, tables of a Go program; signal, registers saved for a signal handler; code, the instruction after the call; " +
				"search, the next return address on the stack of code without unwind information; entry, caller of a function at its first instruction"),
		},
	}}
}

// Trace is a stack shared by rows. Traces are equal if they refer to the same Stack in
// memory. The zero Trace is empty.
type Trace struct{ stack *Stack }

// NewTrace returns a trace of the stack, which must not be modified afterwards.
func NewTrace(s Stack) Trace { return Trace{&s} }

// TraceOf returns the trace of a stack that must not change. Traces of the same pointer are equal.
func TraceOf(s *Stack) Trace { return Trace{s} }

// Frames returns the frames, innermost first.
func (v *Trace) Frames() Stack { return *v.get() }

func (v *Trace) get() *Stack {
	if v.stack == nil {
		return new(Stack)
	}
	return v.stack
}

func (v *Trace) Absent() bool                { return len(*v.get()) == 0 }
func (v *Trace) AppendLines(b []byte) []byte { return v.get().AppendLines(b) }
func (v *Trace) AppendText(b []byte) []byte  { return v.get().AppendText(b) }
func (v *Trace) AppendJSON(b []byte) []byte  { return v.get().AppendJSON(b) }
func (v *Trace) Any() any                    { return v.get().Any() }
func (v *Trace) Schema() Schema              { return v.get().Schema() }
