package code

import (
	"fmt"
	"slices"

	"github.com/corescope/corescope/internal/unwind"
)

// Exit is a return instruction.
type Exit struct {
	Address uint64
	// Shared is set if calls of other functions can also end with it.
	Shared bool
}

// Limits for the code of a function.
const (
	maxParts = 64
	maxBytes = 1 << 20
	maxExits = 256
)

// region is all code that a call of a function can run, except called functions. It contains
// functions that the function jumps to instead of returning (tail calls).
type region struct {
	*Text
	parts []*part
	queue []*part
	bytes uint64
	// shared is set if other functions jump into the function, other than to its first instruction.
	shared  bool
	refused uint64 // address of a return instruction that the kernel refuses to probe, or 0
}

// part is the code of one range.
type part struct {
	unwind.Range
	shared  bool            // calls of other functions can run it
	begins  map[uint64]bool // addresses of its instructions
	targets []uint64        // targets of direct jumps
	exits   []uint64
	calls   bool // it contains calls or system calls
}

// Returns finds the return instructions of a function.
//
// Returns ErrHidden and ErrPart.
func (t *Text) Returns(start uint64) ([]Exit, error) {
	if t.frames.HasFrame(start) {
		return nil, ErrPart
	}
	g, err := t.region(start)
	if err != nil {
		return nil, err
	}
	return g.exits()
}

// Unwinds reports whether an exception or the cancellation of a thread can leave a function: it has
// an entry in the unwind table, and it can call other functions or the kernel.
func (t *Text) Unwinds(start uint64) bool {
	if _, ok := t.frames.Range(start); !ok {
		return t.frames.Unreadable
	}
	g, err := t.region(start)
	return err != nil || slices.ContainsFunc(g.parts, func(p *part) bool { return p.calls })
}

// region finds all code of a function.
//
// Returns ErrHidden.
func (t *Text) region(start uint64) (*region, error) {
	r, ok := t.extent(start)
	if !ok {
		return nil, fmt.Errorf("%w: the function has no entry in the unwind table and no size", ErrHidden)
	}
	if t.sweepAll(); t.exceeded {
		return nil, fmt.Errorf("%w: the file has too much code to decode", ErrHidden)
	}
	g := &region{Text: t, shared: r.Start != start}
	g.queue = append(g.queue, &part{Range: r})
	for len(g.queue) > 0 {
		p := g.queue[0]
		g.queue = g.queue[1:]
		if g.partAt(p.Start) != nil {
			continue
		}
		if err := g.add(p); err != nil {
			return nil, err
		}
	}
	for _, p := range g.parts {
		for _, target := range p.targets {
			if q := g.partAt(target); q == nil || !q.begins[target] {
				return nil, fmt.Errorf("%w: the target %#x of a jump is not the start of an instruction", ErrHidden, target)
			}
		}
	}
	return g, nil
}

func (g *region) partAt(pc uint64) *part {
	for _, p := range g.parts {
		if pc >= p.Start && pc < p.End {
			return p
		}
	}
	return nil
}

func (g *region) exits() ([]Exit, error) {
	if g.refused != 0 {
		return nil, fmt.Errorf("%w: the kernel refuses to probe the return instruction at %#x", ErrHidden, g.refused)
	}
	var all []Exit
	for _, p := range g.parts {
		for _, pc := range p.exits {
			all = append(all, Exit{pc, p.shared || g.shared})
		}
	}
	if len(all) > maxExits {
		return nil, fmt.Errorf("%w: there are more than %d", ErrHidden, maxExits)
	}
	slices.SortFunc(all, func(a, b Exit) int { return int(int64(a.Address - b.Address)) })
	return all, nil
}

// add decodes a part and queues the parts that it jumps to.
func (g *region) add(p *part) error {
	g.parts = append(g.parts, p)
	if g.bytes += p.End - p.Start; len(g.parts) > maxParts || g.bytes > maxBytes {
		return fmt.Errorf("%w: the function has more than %d parts or %d bytes", ErrHidden, maxParts, maxBytes)
	}
	if err := g.sweep(p); err != nil {
		return err
	}
	for _, pc := range g.frames.Steps(p.Range) {
		if !p.begins[pc] {
			return fmt.Errorf("%w: the code at %#x cannot be decoded", ErrHidden, pc)
		}
	}
	for _, target := range p.targets {
		if err := g.follow(p, target); err != nil {
			return err
		}
	}
	p.targets = slices.DeleteFunc(p.targets, g.isPLT)
	g.enter(p)
	return nil
}

// enter queues the parts that jump into p and belong to the same function. It sets shared if other
// functions jump to it.
func (g *region) enter(p *part) {
	for _, c := range g.into(p.Range) {
		switch from, ok := g.extent(c.from); {
		case ok && g.frames.HasFrame(from.Start):
			g.queue = append(g.queue, &part{Range: from, shared: p.shared})
		case g.partAt(c.from) == nil && (!ok || !g.isQueued(from)):
			g.shared = true
		}
	}
}

func (g *region) isQueued(r unwind.Range) bool {
	return slices.ContainsFunc(g.queue, func(p *part) bool { return p.Range == r })
}

// sweep decodes a part.
func (g *region) sweep(p *part) error {
	text, err := g.read(p.Range)
	if err != nil {
		return err
	}
	p.begins = map[uint64]bool{}
	next := uint64(0) // address where execution continues after the last instruction, or 0
	begin := p.Start  // end of the last instruction that does not continue with the next one
	var last Instruction
	for at := 0; at < len(text); {
		pc := p.Start + uint64(at)
		p.begins[pc] = true
		in, ok := g.decode(text[at:], pc)
		if !ok || in.Kind == Unknown {
			return fmt.Errorf("%w: the instruction at %#x is unknown", ErrHidden, pc)
		}
		at += in.Size
		next = pc + uint64(in.Size)
		switch in.Kind {
		case Branch:
			p.targets = append(p.targets, in.Target)
		case Jump:
			p.targets = append(p.targets, in.Target)
			next = 0
		case Return:
			p.exits = append(p.exits, pc)
			if in.Refused {
				g.refused = pc
			}
			next = 0
		case JumpIndirect:
			// A tail call follows the removal of the frame. For a switch, the target is the sum of
			// an address and a table entry.
			if !in.Within && !g.frames.HasFrame(pc) && (in.By == 0 || last.Sum != in.By) {
				return fmt.Errorf("%w: the target of the jump at %#x is unknown", ErrHidden, pc)
			}
			next = 0
		case Stop:
			next = 0
		case Syscall:
			p.calls = true
		case Call:
			p.calls = true
			if at == len(text) {
				next = 0 // the called function does not return
			}
		}
		last = in
		if next == 0 {
			begin = p.Start + uint64(at)
		}
	}
	if next != 0 && slices.Contains(p.targets, begin) {
		p.targets = append(p.targets, next)
	}
	return nil
}

// follow queues the part that contains the target of a jump.
func (g *region) follow(p *part, target uint64) error {
	if target >= p.Start && target < p.End {
		return nil
	}
	if g.isPLT(target) {
		return g.followPLT(target)
	}
	r, ok := g.extent(target)
	if !ok {
		return fmt.Errorf("%w: the function jumps to %#x, which has no entry in the unwind table and no symbol", ErrHidden, target)
	}
	// If there is a frame at the target, the part belongs to the same function.
	g.queue = append(g.queue, &part{Range: r, shared: p.shared || !g.frames.HasFrame(target)})
	return nil
}
