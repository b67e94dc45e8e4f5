// Package flame writes stack profiles as folded stacks, as pprof and speedscope files, and as
// flame graphs (SVG, HTML).
package flame

import (
	"io"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/value"
)

// Kind is the kind of a frame. It determines the colour and the suffix of the frame.
type Kind uint8

// Kinds of frames.
const (
	User Kind = iota
	Kernel
	// Label is not a function, but the name of a task or a separator between two stacks.
	Label
)

// Frame is a frame of a sample. Name is escaped for terminals.
type Frame struct {
	Name string
	Kind Kind
	// Source is the original frame, nil for a label.
	Source *value.Frame
}

// Sample is a stack, outermost frame first, and its weight.
type Sample struct {
	Frames []Frame
	Weight uint64
}

// Unit is the unit of weights.
type Unit string

// Units of weights.
const (
	Samples     Unit = "samples"
	Calls       Unit = "calls"
	Bytes       Unit = "bytes"
	Nanoseconds Unit = "nanoseconds"
)

// Profile is the samples of one run.
type Profile struct {
	// Title is the title set by the tool.
	Title   string
	Samples []Sample
	Unit    Unit
	// Begin and Length are the start and duration of the profile.
	Begin  time.Time
	Length time.Duration
	// Period is the sampling period in ns, 0 if every event is counted.
	Period uint64
}

// Options control the representation of frames.
type Options struct {
	// Marks appends _[k] to kernel functions and _[i] to inlined functions.
	Marks bool
}

// Writer writes a profile in one format.
type Writer func(io.Writer, *Profile) error

// FrameOf returns the frame of a function.
func FrameOf(f *value.Frame) Frame {
	kind := User
	if f.Kernel {
		kind = Kernel
	}
	return Frame{Name: frameName(f), Kind: kind, Source: f}
}

// frameName returns the name of the function. If it is unknown, it returns the base name of
// the module and the offset.
func frameName(f *value.Frame) string {
	short := *f
	if i := strings.LastIndexByte(f.Module, '/'); i >= 0 {
		short.Module = f.Module[i+1:]
	}
	return string(short.AppendText(nil))
}

// LabelOf returns a label frame.
func LabelOf(text string) Frame {
	return Frame{Name: string(value.AppendEscaped(nil, text)), Kind: Label}
}
