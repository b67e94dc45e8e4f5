package flame

import (
	"io"
	"strconv"
)

// Folded writes folded stacks: one line per distinct stack, with the frames separated by
// semicolons, a space and the total weight. Times are in microseconds. A semicolon in a name
// becomes a colon, as is usual for the format.
func (o Options) Folded(w io.Writer, p *Profile) error {
	index := map[string]int{}
	var lines []string
	var weights []uint64
	for i := range p.Samples {
		line := string(o.appendFolded(nil, p.Samples[i].Frames))
		n, ok := index[line]
		if !ok {
			n = len(lines)
			index[line] = n
			lines, weights = append(lines, line), append(weights, 0)
		}
		weights[n] += p.Samples[i].Weight
	}
	var b []byte
	for n, line := range lines {
		b = strconv.AppendUint(append(append(b, line...), ' '), p.Unit.Shown(weights[n]), 10)
		b = append(b, '\n')
	}
	_, err := w.Write(b)
	return err
}

// Shown converts a weight to the unit of text output: microseconds for times.
func (u Unit) Shown(weight uint64) uint64 {
	if u == Nanoseconds {
		return weight / 1000
	}
	return weight
}

func (o Options) appendFolded(b []byte, frames []Frame) []byte {
	for i, f := range frames {
		if i > 0 {
			b = append(b, ';')
		}
		for j := range len(f.Name) {
			if c := f.Name[j]; c == ';' {
				b = append(b, ':')
			} else {
				b = append(b, c)
			}
		}
		switch {
		case o.Marks && f.Kind == Kernel:
			b = append(b, "_[k]"...)
		case o.Marks && f.Source != nil && f.Source.Inlined:
			b = append(b, "_[i]"...)
		}
	}
	return b
}
