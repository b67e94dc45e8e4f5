package probe

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/binary"
)

// ErrUnobserved is returned for a run in which no program was attached in any file of the processes that it
// was asked for, while these ran: that there are no events says nothing about them.
var ErrUnobserved = errors.New("nothing was observed")

// observed tells which of the processes that a run is for have a file mapped that programs are attached in.
type observed struct {
	pids     []uint32 // that were asked for, but not those that they start
	isOf     func(pid uint32) bool
	attached map[binary.ID]bool
	is       map[uint32]bool
	program  map[uint32]string // paths
	lacking  []string          // files of the name that have none of the functions
	late     []string          // files of processes that had ended before programs were attached
}

func newObserved(want *binary.Files) observed {
	return observed{pids: want.PIDs, isOf: want.IsOf, attached: map[binary.ID]bool{}, is: map[uint32]bool{}, program: map[uint32]string{}}
}

// begin looks at what is mapped when the first files have their programs.
func (o *observed) begin(fs *files) {
	if len(o.pids) > 0 {
		// A process that has ended since is not observed.
		_, _ = binary.Scan(o.pids, o.mapped)
	}
	for _, f := range fs.first {
		if !o.attached[f.ID] {
			o.lacks(f)
		}
	}
}

// lacks notes a file that has none of the functions.
func (o *observed) lacks(f *binary.File) {
	name := f.Path
	if f.IsGo() {
		name += " (a Go program)"
	}
	o.lacking = appendNew(o.lacking, name)
}

// mapped looks at a mapping, when what is to be attached in its file is. The mappings of a process that has
// ended by then are still told in their order: its program, and then its libraries.
func (o *observed) mapped(m *binary.Mapped) {
	if len(o.pids) == 0 || !o.isOf(m.PID) {
		return
	}
	f, err := m.Open()
	program, programErr := m.Program() // last, as the process may end meanwhile
	ended := err != nil || programErr != nil
	if err != nil {
		f, err = binary.Open(m.Path)
	}
	if err != nil {
		return
	}
	defer f.Close()
	switch {
	case ended && !o.attached[f.ID] && f.IsProgram():
		o.late = appendNew(o.late, m.Path)
		o.is[m.PID] = false
	case !ended && program == m.Path && o.program[m.PID] != m.Path: // it has executed another one
		o.program[m.PID] = m.Path
		o.is[m.PID], o.lacking = false, nil
		if !o.attached[f.ID] {
			o.lacks(f)
		}
	}
	if o.attached[f.ID] {
		o.is[m.PID] = true
	}
}

// Unobserved tells of a run that is for certain processes and has observed none of them, and why.
//
// Returns ErrUnobserved, or nil.
func (o *Objects) Unobserved() error {
	u := o.user
	u.mu.Lock()
	defer u.mu.Unlock()
	var why []string
	for _, name := range slices.Sorted(maps.Keys(u.names)) {
		fs := u.names[name]
		if len(fs.programs) == 0 || len(fs.want.PIDs) == 0 {
			continue
		}
		for _, is := range fs.observed.is {
			if is {
				return nil
			}
		}
		why = append(why, u.missing(fs))
	}
	if len(why) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnobserved, strings.Join(why, "; "))
}

// missing tells why no program is attached in any file of the name.
func (u *user) missing(fs *files) string {
	o, names := &fs.observed, strings.Join(fs.want.Names, ", ")
	if paths := slices.Concat(fs.want.Paths, fs.want.Extra); len(paths) > 0 {
		names = strings.Join(paths, ", ")
	}
	switch {
	case len(o.late) > 0:
		return few(o.late) + " had ended before programs were attached"
	case len(o.lacking) > 0:
		return fmt.Sprintf("%s: none of the functions %s found", few(o.lacking), u.wanted(fs))
	case len(o.pids) == 1:
		return fmt.Sprintf("process %d has not mapped %s", o.pids[0], names)
	case len(o.pids) > 1:
		return fmt.Sprintf("none of the %d processes has mapped %s", len(o.pids), names)
	}
	return "no process has mapped " + names
}
