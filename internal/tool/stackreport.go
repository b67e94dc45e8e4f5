package tool

import (
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/corescope/corescope/internal/flame"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/value"
)

// report shows what was counted since the last one.
func (s *Stacks[K, V, R]) report(ses *session) error {
	end, last := s.table.epochs.at, !ses.objects.Attached()
	if last && s.Held == nil {
		end = time.Now()
	}
	if err := s.drain(ses); err != nil {
		return err
	}
	if err := s.settle(last); err != nil {
		return err
	}
	if last && ses.shown > 0 && len(s.counts) == 0 {
		return nil
	}
	length := end.Sub(s.table.begin)
	s.table.begin = end
	s.table.span = span{value.Time(end.UnixNano()), value.Elapsed(length)}
	sums := map[R]*V{}
	for k, v := range s.counts {
		s.table.addTo(sums, &k, v)
	}
	clear(s.counts)
	s.table.rank(ses, sums, length)
	s.table.rows = s.table.rows[:s.table.limit(len(s.table.rows))]
	ses.shown++
	ses.events += uint64(len(s.table.rows))
	return s.write(ses, end, length)
}

// settle returns when the stacks have come that were counted.
func (s *Stacks[K, V, R]) settle(last bool) error {
	if last {
		return s.finish()
	}
	ids := map[StackID]bool{}
	for k := range s.counts {
		s.addIDs(ids, unsafe.Pointer(&k))
	}
	s.traces.await(ids)
	return nil
}

func (s *Stacks[K, V, R]) write(ses *session, end time.Time, length time.Duration) error {
	format := ses.out.Format()
	if write := s.writers()[format]; write != nil {
		return write(ses.terminal, s.profile(ses, end, length))
	}
	if format != output.Text {
		return s.table.write(ses)
	}
	if s.Heading != nil {
		ses.out.Append(func(b []byte) []byte { return append(append(b, s.Heading(len(s.table.rows))...), '\n') })
	}
	// The last lines are those that stay on the screen.
	for i := range s.table.rows {
		s.table.row = s.table.rows[len(s.table.rows)-1-i].row
		ses.out.Append(s.appendBlock)
		if err := ses.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// profile is what all rows show.
func (s *Stacks[K, V, R]) profile(ses *session, end time.Time, length time.Duration) *flame.Profile {
	p := &flame.Profile{
		Title: ses.tool.Name, Unit: s.Unit, Period: s.Period, Begin: end.Add(-length), Length: length,
	}
	for i := range s.table.rows {
		row := s.table.rows[i].row
		p.Samples = append(p.Samples, flame.Sample{Frames: s.frames(&row), Weight: s.Weight(&row)})
	}
	return p
}

// frames are those of a row, the outermost first.
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

// appendBlock appends a row as libbpf-tools show it: the stacks, who it was, how much.
func (s *Stacks[K, V, R]) appendBlock(b []byte) []byte {
	parts := s.Parts(&s.table.row)
	if s.Caption != nil {
		b = append(append(b, s.Caption(&s.table.row)...), '\n')
	}
	for i := range parts {
		b = s.appendPart(b, &parts[len(parts)-1-i])
	}
	if s.Caption != nil {
		return append(b, '\n')
	}
	b = append(b, "        "...)
	b = strconv.AppendUint(b, s.Unit.Shown(s.Weight(&s.table.row)), 10)
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
	return append(f.AppendReason(f.AppendLine(b)), '\n')
}
