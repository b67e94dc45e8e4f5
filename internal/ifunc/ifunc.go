// Package ifunc finds what processes run under the names of functions of which a library has several
// implementations (STT_GNU_IFUNC). The dynamic loader has the library choose one, by the CPU, and writes its
// address where programs call it through. It knows no BPF.
package ifunc

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"slices"

	files "github.com/corescope/corescope/internal/binary"
)

// Choice is what processes run as one function.
type Choice struct {
	// Offsets are the implementations, in the library's file.
	Offsets []uint64
	// VDSO tells that there are processes which run code of the kernel's instead, where no probe can be.
	VDSO bool
}

// maxProcesses bounds how many processes of a library are looked at: what is chosen depends on the CPU, and on
// tunables that hardly any process has.
const maxProcesses = 64

// finder looks for the choices of one library.
type finder struct {
	file    *files.File
	elf     *elf.File
	own     []files.Slot
	names   map[symbol]*Choice
	choices map[uint64]*Choice      // by the address of the resolver
	others  map[string][]files.Slot // of other files, by path
}

type symbol struct{ name, version string }

// Find returns what the resolvers of a library have chosen in the processes, or in all processes where none are
// given, by the resolvers' offsets. There is no choice where no process has called the function or may call it.
func Find(f *files.File, resolvers []files.Function, pids []uint32) (map[uint64]*Choice, error) {
	if len(pids) == 0 {
		var err error
		if pids, err = files.Processes(); err != nil {
			return nil, err
		}
	}
	out := map[uint64]*Choice{}
	own, err := f.Slots()
	if err != nil {
		return nil, err
	}
	err = f.Parse(func(e *elf.File) error {
		s := &finder{file: f, elf: e, own: own, names: map[symbol]*Choice{}, choices: map[uint64]*Choice{}, others: map[string][]files.Slot{}}
		for _, fn := range resolvers {
			s.add(fn, out)
		}
		left := maxProcesses
		for _, pid := range pids {
			if left > 0 && s.process(pid) {
				left--
			}
		}
		return nil
	})
	for offset, c := range out {
		slices.Sort(c.Offsets)
		if len(c.Offsets) == 0 && !c.VDSO {
			delete(out, offset)
		}
	}
	return out, err
}

// add prepares for a resolver. Several names may be of one.
func (s *finder) add(fn files.Function, out map[uint64]*Choice) {
	vaddr, ok := files.Address(s.elf, fn.Offset)
	if !ok {
		return
	}
	c := out[fn.Offset]
	if c == nil {
		c = &Choice{}
		out[fn.Offset], s.choices[vaddr] = c, c
	}
	s.names[symbol{fn.Name, fn.Version}] = c
	if !fn.Old { // programs that were linked with a library without versions
		s.names[symbol{fn.Name, ""}] = c
	}
}

// image is a file as a process has it mapped.
type image struct {
	files.Mapped
	bias uint64 // that addresses in memory have over those in the file
}

// process looks at the choices in one process; it is false if that does not have the library.
func (s *finder) process(pid uint32) bool {
	mapped, err := files.Executable(pid)
	if err != nil {
		return false
	}
	library, ok := s.library(mapped)
	if !ok {
		return false
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false
	}
	defer memory.Close()
	p := &process{finder: s, memory: memory, library: library, mapped: mapped}
	p.read(s.own, library.bias)
	for _, m := range mapped {
		if m.Inode != 0 && m.Inode != library.Inode {
			p.readOther(&m)
		}
	}
	return true
}

// library finds the file's code among the mappings.
func (s *finder) library(mapped []files.Mapped) (image, bool) {
	for _, m := range mapped {
		// In an overlay the inode may be that of a layer.
		if m.Inode == 0 || m.Inode != s.file.Inode() && m.Base() != path.Base(s.file.Path) {
			continue
		}
		f, err := m.Open()
		if err != nil {
			continue
		}
		f.Close()
		vaddr, ok := files.Address(s.elf, m.Offset)
		if ok && f.ID == s.file.ID {
			return image{m, m.Start - vaddr}, true
		}
	}
	return image{}, false
}

// process is one that has the library mapped.
type process struct {
	*finder
	memory  *os.File
	library image
	mapped  []files.Mapped
}

// readOther looks through what another file of the process calls the library's functions.
func (p *process) readOther(m *files.Mapped) {
	f, err := m.Open()
	if err != nil {
		return
	}
	defer f.Close()
	slots, known := p.others[m.Path]
	if !known {
		slots = p.wanted(f)
		p.others[m.Path] = slots
	}
	if len(slots) == 0 {
		return
	}
	// What cannot be read calls nothing.
	_ = f.Parse(func(e *elf.File) error {
		if vaddr, ok := files.Address(e, m.Offset); ok {
			p.read(slots, m.Start-vaddr)
		}
		return nil
	})
}

// wanted are the slots of the file that are for one of the functions.
func (p *process) wanted(f *files.File) []files.Slot {
	slots, err := f.Slots()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(slots), func(s files.Slot) bool { return p.names[symbol{s.Symbol, s.Version}] == nil })
}

// read looks at the addresses in slots.
func (p *process) read(slots []files.Slot, bias uint64) {
	for _, slot := range slots {
		c := p.choices[slot.Resolver]
		if slot.Resolver == 0 {
			c = p.names[symbol{slot.Symbol, slot.Version}]
		}
		var word [8]byte
		if c == nil {
			continue
		}
		if _, err := p.memory.ReadAt(word[:], int64(slot.Address+bias)); err != nil {
			continue
		}
		p.choose(c, binary.NativeEndian.Uint64(word[:]))
	}
}

// choose notes an address: it is not of the library, but of the file that calls, where the function was not called
// yet.
func (p *process) choose(c *Choice, address uint64) {
	for _, m := range p.mapped {
		if address < m.Start || address >= m.End {
			continue
		}
		offset := address - m.Start + m.Offset
		switch {
		case m.Path == "[vdso]" && m.Inode == 0:
			c.VDSO = true
		case m.Inode == p.library.Inode && m.Path == p.library.Path && !slices.Contains(c.Offsets, offset):
			c.Offsets = append(c.Offsets, offset)
		}
	}
}
