package unwind

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
)

// BlockRows is UNWIND_BLOCK_ROWS of unwind.bpf.h.
const BlockRows = 128

// Block is struct unwind_block: rows, and behind the last ones that no address reaches.
type Block struct {
	PC   [BlockRows]uint32
	Rule [BlockRows]uint16
}

// Mapping is struct unwind_mapping.
type Mapping struct {
	Start, End uint64
	// Bias is what addresses here have over those of the file.
	Bias uint64
	// First and Count are the blocks of the file's table.
	First, Count uint32
}

// Process is struct unwind_process.
type Process struct {
	// Space is that of the address space, 0 if it is not known yet.
	Space uint32
	// First and Count are its mappings, by address.
	First, Count uint32
	_            uint32
}

// Maps are where the kernel's programs look.
type Maps interface {
	PutRule(at uint32, r Rule) error
	PutBlock(at uint32, b *Block) error
	PutMapping(at uint32, m *Mapping) error
	PutProcess(pid uint32, p *Process) error
	// DropProcess forgets a process, if it is there.
	DropProcess(pid uint32) error
}

// Limits are how much fits into the maps.
type Limits struct{ Rules, Blocks, Mappings, Processes int }

// ErrFull is returned where a map has no more room.
var ErrFull = errors.New("no room for more unwind tables")

// Tables are those of the processes that are followed. They are one goroutine's.
type Tables struct {
	maps      Maps
	limits    Limits
	rules     map[Rule]uint16
	blocks    *ranges
	mappings  *ranges
	files     map[fileKey]*file
	processes map[uint32]*process
	vdso      *vdso
	swept     time.Time
}

// process is what is known of one.
type process struct {
	space    uint32
	place    span // of the mappings
	mappings []Mapping
	files    []*file                 // of these
	mapped   map[binary.Mapped]*file // all files that were looked at
}

// errUnmade is returned for a file whose table is not made yet.
var errUnmade = errors.New("no table yet")

// New returns tables that are kept in the maps, which are empty.
func New(m Maps, l Limits) *Tables {
	t := &Tables{
		maps: m, limits: l, rules: map[Rule]uint16{0: 0}, blocks: newRanges(l.Blocks), mappings: newRanges(l.Mappings),
		files: map[fileKey]*file{}, processes: map[uint32]*process{},
	}
	t.vdso, _ = readVDSO(l.Blocks * BlockRows) // without it calls of its functions end there
	return t
}

// Follow makes tables of what a process maps, or looks at it again. Space is that of its
// address space, 0 if it is not known: then it is the one that it had before, or that it is
// seen with first.
//
// Returns ErrFull, where some of its files have no table.
func (t *Tables) Follow(pid, space uint32) error {
	mapped, err := binary.Executable(pid)
	if err != nil {
		return errors.Join(err, t.drop(pid))
	}
	t.makeRoom()
	// The tables that there are do for as long as it takes to make the others.
	if p, err := t.look(pid, space, mapped, false); err == nil || len(p.mappings) == 0 {
		t.release(p)
	} else if err := t.replace(pid, p); err != nil {
		return err
	}
	p, full := t.look(pid, space, mapped, true)
	return cmp.Or(t.replace(pid, p), full)
}

// look finds the tables of the mappings, and makes those that there are not if it may. The
// error is that one could not be had.
func (t *Tables) look(pid, space uint32, mapped []binary.Mapped, build bool) (p *process, missing error) {
	p = &process{space: space, mapped: map[binary.Mapped]*file{}}
	var known map[binary.Mapped]*file
	if old := t.processes[pid]; old != nil && (space == 0 || space == old.space) {
		p.space, known = old.space, old.mapped
	}
	for i := range mapped {
		m := &mapped[i]
		f := known[*m]
		if f == nil {
			var err error
			if f, err = t.file(m, build); err != nil {
				missing = cmp.Or(missing, lack(m, err))
				continue
			}
		}
		p.add(m, f)
	}
	return p, missing
}

// lack is what it means that there is no table of a file: nothing, where it cannot be read.
func lack(m *binary.Mapped, err error) error {
	switch {
	case errors.Is(err, ErrFull), errors.Is(err, ErrTooMany):
		return fmt.Errorf("%w: %s", ErrFull, m.Path)
	case errors.Is(err, errUnmade):
		return err
	}
	return nil
}

func (p *process) add(m *binary.Mapped, f *file) {
	if f.blocks.count == 0 {
		p.mapped[*m] = f
		return
	}
	if bias, ok := f.bias(m.Start, m.Offset); ok {
		f.refs++
		p.mapped[*m] = f
		p.files = append(p.files, f)
		p.mappings = append(p.mappings, Mapping{m.Start, m.End, bias, f.blocks.first, f.blocks.count})
	}
}

// replace puts a process where another of its number, or an earlier state of it, was.
func (t *Tables) replace(pid uint32, p *process) error {
	old := t.processes[pid]
	if old != nil && old.space == p.space && slices.Equal(old.mappings, p.mappings) {
		old.mapped = p.mapped
		t.release(p)
		return nil
	}
	if len(p.mappings) == 0 {
		return t.drop(pid)
	}
	place, ok := t.mappings.take(len(p.mappings))
	if !ok || old == nil && len(t.processes) >= t.limits.Processes {
		t.mappings.give(place)
		t.release(p)
		return errors.Join(ErrFull, t.drop(pid))
	}
	p.place = place
	for i := range p.mappings {
		if err := t.maps.PutMapping(place.first+uint32(i), &p.mappings[i]); err != nil {
			return fmt.Errorf("write mapping: %w", err)
		}
	}
	if err := t.maps.PutProcess(pid, &Process{Space: p.space, First: place.first, Count: place.count}); err != nil {
		return fmt.Errorf("write process: %w", err)
	}
	if old != nil {
		t.release(old)
	}
	t.processes[pid] = p
	return nil
}

func (t *Tables) drop(pid uint32) error {
	p := t.processes[pid]
	if p == nil {
		return nil
	}
	delete(t.processes, pid)
	t.release(p)
	return t.maps.DropProcess(pid)
}

func (t *Tables) release(p *process) {
	t.mappings.give(p.place)
	for _, f := range p.files {
		f.refs--
	}
}

// sweepEvery is how often at most processes that have ended are looked for.
const sweepEvery = time.Second

// makeRoom forgets processes that have ended and files that none maps, when little is left.
func (t *Tables) makeRoom() {
	isScarce := func(left, all int) bool { return left < (all+3)/4 }
	if !isScarce(t.blocks.left(), t.limits.Blocks) && !isScarce(t.mappings.left(), t.limits.Mappings) &&
		!isScarce(t.limits.Processes-len(t.processes), t.limits.Processes) || time.Since(t.swept) < sweepEvery {
		return
	}
	t.swept = time.Now()
	for pid := range t.processes {
		if errors.Is(unix.Kill(int(pid), 0), unix.ESRCH) {
			_ = t.drop(pid) // there is no other error than that it is not there
		}
	}
	for key, f := range t.files {
		if f.refs == 0 {
			t.blocks.give(f.blocks)
			delete(t.files, key)
		}
	}
}
