package probe

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/binary"
)

// ErrUnobserved is returned for a run that is restricted to some processes, if programs were
// attached in no file that these processes had mapped: the absence of events then means nothing.
var ErrUnobserved = errors.New("nothing was observed")

// observed records which of the processes of a run have mapped a file that programs are attached
// in.
type observed struct {
	pids       []uint32 // of the command line, without their descendants
	isSelected func(pid uint32) bool
	attached   map[binary.ID]bool
	isObserved map[uint32]bool
	attachedAt map[uint32]uint64      // time of the last mapping of a file in attached
	noted      map[uint32][]binary.ID // files that processes had mapped before programs were attached
	program    map[uint32]string      // paths by PID
	unsuitable []string               // files with a matching name but none of the functions
	late       []string               // files of processes that exited before programs were attached
}

func newObserved(want *binary.Files) observed {
	return observed{
		pids: want.PIDs, isSelected: want.Includes, attached: map[binary.ID]bool{}, isObserved: map[uint32]bool{}, attachedAt: map[uint32]uint64{}, noted: map[uint32][]binary.ID{}, program: map[uint32]string{},
	}
}

// note records a mapping that exists before programs are attached.
func (o *observed) note(m *binary.Mapped) {
	if !slices.Contains(o.pids, m.PID) {
		return
	}
	if f, err := m.Open(); err == nil {
		o.noted[m.PID] = append(o.noted[m.PID], f.ID)
		f.Close()
	}
}

// addExited records the processes that have exited since note as observed, if programs were attached
// in one of their files: they can have run until then.
func (o *observed) addExited() {
	for pid, files := range o.noted {
		if !isRunning(pid) && slices.ContainsFunc(files, func(id binary.ID) bool { return o.attached[id] }) {
			o.isObserved[pid] = true
		}
	}
	clear(o.noted)
}

// begin records the mappings that exist when programs are attached in the first files.
func (o *observed) begin(fs *files) {
	if len(o.pids) > 0 {
		_, _ = binary.Scan(o.pids, o.mapped) // errors: some processes have exited meanwhile
	}
	o.addExited()
	for _, f := range fs.initial {
		if !o.attached[f.ID] {
			o.addUnsuitable(f)
		}
	}
}

// addUnsuitable records a file that has none of the functions.
func (o *observed) addUnsuitable(f *binary.File) {
	name := f.Path
	if f.IsGo() {
		name += " (a Go program)"
	}
	o.unsuitable = appendNew(o.unsuitable, name)
}

// mapped records a mapping. Programs must have been attached in its file before, if it has suitable
// functions. The mappings of a process that has exited meanwhile are still reported in order: its
// program first, then its libraries, unless the process went to another CPU in between.
func (o *observed) mapped(m *binary.Mapped) {
	if len(o.pids) == 0 || !o.isSelected(m.PID) {
		return
	}
	f, err := m.Open()
	program, programErr := m.Program() // after Open, because the process can exit in between
	exited := err != nil || programErr != nil
	if err != nil {
		f, err = binary.Open(m.Path)
	}
	if err != nil {
		return
	}
	defer f.Close()
	switch {
	case exited && !o.attached[f.ID] && f.IsProgram():
		o.late = appendNew(o.late, m.Path)
		o.isObserved[m.PID] = o.attachedAt[m.PID] > m.Time
	case !exited && program == m.Path && o.program[m.PID] != m.Path: // the process has called exec
		o.program[m.PID] = m.Path
		o.isObserved[m.PID], o.unsuitable = o.attachedAt[m.PID] > m.Time, nil
		if !o.attached[f.ID] {
			o.addUnsuitable(f)
		}
	}
	if o.attached[f.ID] {
		o.isObserved[m.PID] = true
		o.attachedAt[m.PID] = max(o.attachedAt[m.PID], m.Time)
	}
}

// Unobserved returns ErrUnobserved with the reason if the run is restricted to some processes and
// has observed none of them, otherwise nil.
func (o *Objects) Unobserved() error {
	u := o.user
	u.mu.Lock()
	defer u.mu.Unlock()
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(u.names)) {
		fs := u.names[name]
		if len(fs.programs) == 0 || len(fs.want.PIDs) == 0 {
			continue
		}
		for _, isObserved := range fs.observed.isObserved {
			if isObserved {
				return nil
			}
		}
		reasons = append(reasons, u.unattachedReason(fs))
	}
	if len(reasons) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnobserved, strings.Join(reasons, "; "))
}

// unattachedReason describes why no program is attached in any file of the name.
func (u *user) unattachedReason(fs *files) string {
	o, names := &fs.observed, strings.Join(fs.want.Names, ", ")
	paths := slices.Concat(fs.want.Paths, fs.want.Extra)
	if len(paths) > 0 {
		names = strings.Join(paths, ", ")
	}
	isFileSuitable := len(paths) > 0 && len(o.attached) > 0
	switch {
	case len(o.late) > 0:
		return "exited before programs were attached: " + shortList(o.late)
	case len(o.unsuitable) > 0 && !isFileSuitable:
		return fmt.Sprintf("%s: %s", shortList(o.unsuitable), u.notFound(fs))
	case len(o.pids) == 1:
		return fmt.Sprintf("process %d has not mapped %s", o.pids[0], names)
	case len(o.pids) > 1:
		return fmt.Sprintf("none of the %d processes has mapped %s", len(o.pids), names)
	}
	return "no process has mapped " + names
}
