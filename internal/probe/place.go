package probe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/usdt"
)

// place is where a program in user space goes, by its section:
//
//	uprobe/FILES:FUNCTION[,FUNCTION...]   where the functions are entered, as many as there are
//	uretprobe/FILES:FUNCTION[,...]        where they return
//	usdt/FILES:PROVIDER:NAME              a probe that is built in
//
// FILES is a name that [Options].Files explains.
type place struct {
	kind      string
	files     string
	functions []string
	probe     string // PROVIDER:NAME
}

// userPlace returns the place that the section names, false for programs of the kernel's.
func userPlace(section string) (place, bool) {
	kind, rest, ok := strings.Cut(section, "/")
	if !ok {
		return place{}, false // its targets are of the user's choice
	}
	files, what, _ := strings.Cut(rest, ":")
	switch kind {
	case "uprobe", "uretprobe":
		return place{kind: kind, files: files, functions: strings.Split(what, ",")}, true
	case "usdt":
		return place{kind: kind, files: files, probe: what}, true
	}
	return place{}, false
}

// whereOf is the section in a word.
func whereOf(section string) string {
	p, ok := userPlace(section)
	switch {
	case !ok:
		return section
	case p.kind == "uretprobe":
		return "uprobe/" + p.files
	}
	return p.kind + "/" + p.files
}

// FileNames lists the names of files that the programs of an object are attached in.
func FileNames(spec *ebpf.CollectionSpec) []string {
	var names []string
	for _, prog := range spec.Programs {
		if p, ok := userPlace(prog.SectionName); ok && !slices.Contains(names, p.files) {
			names = append(names, p.files)
		}
	}
	slices.Sort(names)
	return names
}

// site is one instruction that a program is attached to.
type site struct {
	offset    uint64 // in the file
	semaphore uint64 // likewise, or 0
	cookie    uint64
	form      form
}

// sites finds the place in a file; none if it is not there.
func (u *user) sites(p place, f *binary.File) ([]site, error) {
	if p.kind == "usdt" {
		return u.probeSites(p, f)
	}
	all, err := f.Functions()
	if err != nil {
		return nil, err
	}
	var offsets []uint64
	names := map[uint64]string{}
	prefix := u.names[p.files].want.Prefix
	for _, fn := range all {
		name, ok := strings.CutPrefix(fn.Name, prefix)
		if ok && slices.Contains(p.functions, name) && names[fn.Offset] == "" {
			offsets, names[fn.Offset] = append(offsets, fn.Offset), fn.Name
		}
	}
	if p.kind == "uretprobe" {
		return u.returnSites(p, f, offsets, names), nil
	}
	var sites []site
	for _, offset := range offsets {
		// A call whose return cannot be observed is not observed at all.
		if _, err := u.objects.returnsOf(f, offset, ""); err != nil {
			continue
		}
		if err := checkEntry(f, offset, names[offset]); err != nil {
			u.objects.notify(err)
			continue
		}
		sites = append(sites, site{offset: offset})
	}
	return sites, nil
}

// returnSites finds where functions return. Shared return instructions are only suitable for programs that match
// returns with entries.
func (u *user) returnSites(p place, f *binary.File, offsets []uint64, names map[uint64]string) (sites []site) {
	u.objects.findReturns(f, offsets)
	for _, offset := range offsets {
		found, err := u.objects.returnsOf(f, offset, names[offset])
		if err == nil && !u.hasEntry(p) {
			if found = u.objects.alone(found); found.err != nil {
				err = unsafeReturn(f, names[offset], found)
			}
		}
		if err != nil {
			u.objects.notify(err)
			continue
		}
		for form := afterReturn; form <= atSharedReturn; form++ {
			for _, at := range found.in(form, offset) {
				if s := (site{offset: at, form: form}); !slices.Contains(sites, s) {
					sites = append(sites, s)
				}
			}
		}
	}
	// The return instruction of one function can be shared by another one of the program's: both see all its calls.
	own := func(offset uint64) bool { return slices.Contains(sites, site{offset: offset, form: atReturn}) }
	return slices.DeleteFunc(sites, func(s site) bool { return s.form == atSharedReturn && own(s.offset) })
}

// hasEntry reports whether programs are attached to the entries of the functions too.
func (u *user) hasEntry(p place) bool {
	for _, prog := range u.objects.spec.Programs {
		entry, ok := userPlace(prog.SectionName)
		if ok && entry.kind == "uprobe" && entry.files == p.files && slices.Contains(entry.functions, p.functions[0]) {
			return true
		}
	}
	return false
}

func (u *user) probeSites(p place, f *binary.File) ([]site, error) {
	all, err := usdt.Read(f)
	if err != nil {
		return nil, err
	}
	var sites []site
	for _, s := range all {
		if s.Provider+":"+s.Name != p.probe {
			continue
		}
		if s.Err != nil {
			return nil, fmt.Errorf("read %s: %w", p.probe, s.Err)
		}
		nr, err := u.spec(s.Args)
		if err != nil {
			return nil, fmt.Errorf("attach %s: %w", p.probe, err)
		}
		sites = append(sites, site{offset: s.Offset, semaphore: s.Semaphore, cookie: uint64(nr)})
	}
	return sites, nil
}
