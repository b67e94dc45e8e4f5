// Package flame writes what was counted by stacks in the forms that other programs read
// (folded stacks, pprof, speedscope) and as a flame graph, a picture that needs none.
package flame

import (
	"io"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/value"
)

// Kind is what a frame is, for its colour and its mark.
type Kind uint8

// Kinds of frames.
const (
	User Kind = iota
	Kernel
	// Label is no function: the name of a task, or a line between two stacks.
	Label
)

// Frame is a line of a sample. Name is safe for a terminal.
type Frame struct {
	Name string
	Kind Kind
	// Of is what it was made of, nil for a label.
	Of *value.Frame
}

// Sample is what was counted for one stack, the outermost frame first.
type Sample struct {
	Frames []Frame
	Weight uint64
}

// Unit is what weights are.
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
	// Title is what the tool says of it.
	Title   string
	Samples []Sample
	Unit    Unit
	// Begin and Length are of the time that it is of.
	Begin  time.Time
	Length time.Duration
	// Period is the ns between two samples; 0 where all that happened is counted.
	Period uint64
}

// Options say how frames are shown.
type Options struct {
	// Marks puts _[k] behind functions of the kernel, and _[i] behind those that stand in others.
	Marks bool
}

// Writer writes a profile in one form.
type Writer func(io.Writer, *Profile) error

// FrameOf returns the frame of a function.
func FrameOf(f *value.Frame) Frame {
	kind := User
	if f.Kernel {
		kind = Kernel
	}
	return Frame{Name: frameName(f), Kind: kind, Of: f}
}

// frameName is the function's name, or the module's without its folders and the place there.
func frameName(f *value.Frame) string {
	short := *f
	if i := strings.LastIndexByte(f.Module, '/'); i >= 0 {
		short.Module = f.Module[i+1:]
	}
	return string(short.AppendText(nil))
}

// LabelOf returns the frame of a label.
func LabelOf(text string) Frame {
	return Frame{Name: string(value.AppendEscaped(nil, text)), Kind: Label}
}
