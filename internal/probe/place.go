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
	var sites []site
	prefix := u.names[p.files].want.Prefix
	for _, fn := range all {
		s := site{offset: fn.Offset}
		name, ok := strings.CutPrefix(fn.Name, prefix)
		if ok && slices.Contains(p.functions, name) && !slices.Contains(sites, s) {
			sites = append(sites, s)
		}
	}
	return sites, nil
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
		sites = append(sites, site{s.Offset, s.Semaphore, uint64(nr)})
	}
	return sites, nil
}
