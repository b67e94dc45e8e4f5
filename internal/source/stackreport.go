package source

import (
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

// report shows the counts since the previous report.
func (s *Stacks[K, V, R]) report(ses *tool.Session) error {
	end, last := s.table.epochs.at, !ses.Objects.Attached()
	if last && s.Held == nil {
		end = time.Now()
	}
	s.due.take(ses)
	if err := s.drain(ses); err != nil {
		return err
	}
	if err := s.settle(last); err != nil {
		return err
	}
	s.fold(true)
	if last && ses.Shown > 0 && len(s.sums) == 0 {
		return nil
	}
	length := end.Sub(s.table.begin)
	s.table.begin = end
	s.table.span = span{value.Time(end.UnixNano()), value.Elapsed(length)}
	s.table.rank(ses, s.sums, length)
	clear(s.sums)
	s.table.rows = s.table.rows[:s.table.limit(len(s.table.rows))]
	ses.Shown++
	ses.Events += uint64(len(s.table.rows))
	if err := s.write(ses, end, length); err != nil || last {
		return err
	}
	return s.endDrain()
}

// settle waits until the stacks of all counts are read.
func (s *Stacks[K, V, R]) settle(last bool) error {
	if last {
		return s.finish()
	}
	ids := map[stacktrace.StackID]bool{}
	for k := range s.counts {
		s.addIDs(ids, unsafe.Pointer(&k))
	}
	return s.await(ids)
}

func (s *Stacks[K, V, R]) write(ses *tool.Session, end time.Time, length time.Duration) error {
	format := ses.Out.Format()
	if write := s.writers()[format]; write != nil {
		return write(ses.Terminal, s.profile(ses, end, length))
	}
	if format == output.Typed {
		return ses.Out.Profile(s.profile(ses, end, length))
	}
	if format != output.Text {
		return s.table.write(ses)
	}
	ses.Out.Begin(s.table.span.Time)
	if s.Heading != nil {
		ses.Out.Append(func(b []byte) []byte { return append(append(b, s.Heading(len(s.table.rows))...), '\n') })
	}
	// The rows with the largest weight come last, where a terminal still shows them.
	for i := range s.table.rows {
		s.table.set(s.table.rows[len(s.table.rows)-1-i].row)
		ses.Out.Append(s.appendBlock)
		if err := ses.Out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// profile returns all rows as a profile.
func (s *Stacks[K, V, R]) profile(ses *tool.Session, end time.Time, length time.Duration) *flame.Profile {
	p := &flame.Profile{
		Title: ses.Name(), Unit: s.Unit, Period: s.Period, Begin: end.Add(-length), Length: length,
	}
	for i := range s.table.rows {
		row := s.table.rows[i].row.(R)
		p.Samples = append(p.Samples, flame.Sample{Frames: s.frames(&row), Weight: s.Weight(&row)})
	}
	return p
}

// frames returns the frames of a row, outermost first.
func (s *Stacks[K, V, R]) frames(row *R) []flame.Frame {
	var frames []flame.Frame
	for _, p := range s.Parts(row) {
		stack := p.Trace.Frames()
		if len(stack) == 0 && p.Label != "" {
			frames = append(frames, flame.LabelOf(p.Label))
		}
		for i := range stack {
			f := &stack[i]
			if !p.Reverse {
				f = &stack[len(stack)-1-i]
			}
			frames = append(frames, flame.FrameOf(f))
		}
	}
	return frames
}

// appendBlock appends a row in the format of libbpf-tools: the stacks, the task, the weight.
func (s *Stacks[K, V, R]) appendBlock(b []byte) []byte {
	parts := s.Parts(&s.row)
	if s.Caption != nil {
		b = append(append(b, s.Caption(&s.row)...), '\n')
	}
	for i := range parts {
		b = s.appendPart(b, &parts[len(parts)-1-i])
	}
	if s.Caption != nil {
		return append(b, '\n')
	}
	b = append(b, "        "...)
	b = strconv.AppendUint(b, s.Unit.Shown(s.Weight(&s.row)), 10)
	return append(b, "\n\n"...)
}

func (s *Stacks[K, V, R]) appendPart(b []byte, p *Part) []byte {
	stack := p.Trace.Frames()
	switch {
	case len(stack) == 0 && p.Mark:
		return append(append(append(b, "    "...), p.Label...), '\n')
	case len(stack) == 0 && p.Label != "":
		title := p.Title + strings.Repeat(" ", max(0, 16-len(p.Title)))
		b = append(append(append(b, "    "...), title...), ' ')
		return append(append(value.AppendEscaped(b, p.Label), p.More...), '\n')
	}
	for i := range stack {
		f := &stack[i]
		if p.Reverse {
			f = &stack[len(stack)-1-i]
		}
		b = s.appendFrame(b, f)
	}
	return b
}

func (s *Stacks[K, V, R]) appendFrame(b []byte, f *value.Frame) []byte {
	b = append(b, "    "...)
	if s.Address && f.Address != 0 {
		b = append(f.Address.AppendText(append(b, "0x"...)), ' ')
	}
	b = f.AppendName(b)
	if s.Offset && f.Symbol != "" && f.Address != 0 {
		b = strconv.AppendUint(append(b, "+0x"...), f.Offset, 16)
	}
	b = f.AppendReason(f.AppendLine(b))
	if f.How == stacktrace.BySearch.String() {
		b = append(b, " (found by stack search)"...)
	}
	return append(b, '\n')
}
