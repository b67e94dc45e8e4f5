package probe

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/usdt"
)

// userSection is the parsed section of a program in user space:
//
//	uprobe/FILES:FUNCTION[,FUNCTION...]   entries of those of the functions that exist; the attach
//	                                      cookie is the index of the function
//	uretprobe/FILES:FUNCTION[,...]        returns of these functions
//	usdt/FILES:PROVIDER:NAME              USDT probe
//
// FILES is a key of [Options].Files.
type userSection struct {
	kind      string
	files     string
	functions []string
	probe     string // PROVIDER:NAME
}

// parseUserSection returns false if the section does not name an attach point in user space.
func parseUserSection(section string) (userSection, bool) {
	kind, rest, ok := strings.Cut(section, "/")
	if !ok {
		return userSection{}, false // the section of an instance, whose targets the user selects
	}
	files, what, _ := strings.Cut(rest, ":")
	switch kind {
	case "uprobe", "uretprobe":
		return userSection{kind: kind, files: files, functions: strings.Split(what, ",")}, true
	case "usdt":
		return userSection{kind: kind, files: files, probe: what}, true
	}
	return userSection{}, false
}

// shortSection returns the section for display, without the functions or probe in user space.
func shortSection(section string) string {
	p, ok := parseUserSection(section)
	switch {
	case !ok:
		return section
	case p.kind == "uretprobe":
		return "uprobe/" + p.files
	}
	return p.kind + "/" + p.files
}

// FileNames returns the FILES of all sections in user space, sorted.
func FileNames(spec *ebpf.CollectionSpec) []string {
	var names []string
	for _, prog := range spec.Programs {
		if p, ok := parseUserSection(prog.SectionName); ok && !slices.Contains(names, p.files) {
			names = append(names, p.files)
		}
	}
	slices.Sort(names)
	return names
}

// site is an instruction in a file that a program is attached to.
type site struct {
	offset    uint64 // in the file
	semaphore uint64 // offset in the file, or 0 if there is none
	cookie    uint64
	form      form
}

// sites returns the attach points of a section in a file, none if the file does not contain them.
func (u *user) sites(p userSection, f *binary.File) ([]site, error) {
	if p.kind == "usdt" {
		return u.probeSites(p, f)
	}
	all, err := f.Functions()
	if err != nil {
		return nil, err
	}
	var offsets []uint64
	names := map[uint64]string{}
	want := &u.names[p.files].want
	for _, fn := range all {
		name, ok := want.Function(fn.Name)
		if ok && slices.Contains(p.functions, name) && names[fn.Offset] == "" {
			offsets, names[fn.Offset] = append(offsets, fn.Offset), fn.Name
		}
	}
	if p.kind == "uretprobe" {
		return u.returnSites(p, f, offsets, names), nil
	}
	var sites []site
	for _, offset := range offsets {
		// If the returns of a function cannot be observed, its entries are not observed either.
		if _, err := u.objects.returnsOf(f, offset, ""); err != nil {
			continue
		}
		if err := checkEntry(f, offset, names[offset]); err != nil {
			u.objects.notify(err)
			continue
		}
		name, _ := want.Function(names[offset])
		sites = append(sites, site{offset: offset, cookie: uint64(slices.Index(p.functions, name))})
	}
	return sites, nil
}

// returnSites returns the attach points for the returns of functions. Return instructions that are
// shared by several functions are only used for programs that match returns with entries.
func (u *user) returnSites(p userSection, f *binary.File, offsets []uint64, names map[uint64]string) (sites []site) {
	u.objects.findReturns(f, offsets)
	for _, offset := range offsets {
		found, err := u.objects.returnsOf(f, offset, names[offset])
		if err == nil && !u.hasEntry(p) {
			if found = u.objects.withoutShared(found); found.err != nil {
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
	// Two observed functions can share a return instruction, which is then a site in two forms: one
	// is enough.
	isAtReturn := func(offset uint64) bool { return slices.Contains(sites, site{offset: offset, form: atReturn}) }
	return slices.DeleteFunc(sites, func(s site) bool { return s.form == atSharedReturn && isAtReturn(s.offset) })
}

// hasEntry reports whether programs are also attached to the entries of the functions.
func (u *user) hasEntry(p userSection) bool {
	for _, prog := range u.objects.spec.Programs {
		entry, ok := parseUserSection(prog.SectionName)
		if ok && entry.kind == "uprobe" && entry.files == p.files && slices.Contains(entry.functions, p.functions[0]) {
			return true
		}
	}
	return false
}

func (u *user) probeSites(p userSection, f *binary.File) ([]site, error) {
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
