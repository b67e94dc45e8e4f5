package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// HideUnneeded hides programs of an ELF object from the library: those of the hooks without, and those for
// tracepoints that Attach tries only if a program of kind btf fails. They are most of an object, and
// decoding them takes milliseconds. The types of their sections become SHT_NULL, and .BTF.ext does not mention
// them any more. Sections with other programs stay. Options.Rest returns the hidden programs.
//
// From Linux 7.0 on, where other kinds can be tried first (see preferUnpreempted), all kinds stay.
func HideUnneeded(object []byte, without []string) error {
	return hideUnneeded(object, without, canHide())
}

func canHide() bool { return isBefore(7, 0) }

func hideUnneeded(object []byte, without []string, canHide bool) error {
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return fmt.Errorf("read ELF header: %w", err)
	}
	symbols, err := f.Symbols()
	if err != nil {
		return fmt.Errorf("read symbols: %w", err)
	}
	unneeded := unneededSections(f.Sections, symbols, without, canHide)
	hidden := map[string]bool{}
	for i, s := range f.Sections {
		if unneeded[elf.SectionIndex(i)] {
			hidden[s.Name] = true
		}
		if unneeded[elf.SectionIndex(i)] || s.Type == elf.SHT_REL && unneeded[elf.SectionIndex(s.Info)] {
			hideSection(object, i)
		}
	}
	return hideExtInfo(object, f, hidden)
}

// unneededSections returns the sections of which all programs belong to the hooks without or, with
// canHide, are tried only after others.
func unneededSections(sections []*elf.Section, symbols []elf.Symbol, without []string, canHide bool) map[elf.SectionIndex]bool {
	symbols = slices.DeleteFunc(symbols, func(s elf.Symbol) bool {
		return elf.ST_TYPE(s.Info) != elf.STT_FUNC || int(s.Section) >= len(sections)
	})
	kinds := map[string][]string{} // by hook
	for _, s := range symbols {
		hook, kind := split(s.Name)
		if _, target, _ := strings.Cut(sections[s.Section].Name, "/"); target == "" {
			kind = "" // an Instance has the target
		}
		kinds[hook] = append(kinds[hook], kind)
	}
	unneeded := map[elf.SectionIndex]bool{}
	for _, s := range symbols {
		hook, kind := split(s.Name)
		known, ok := unneeded[s.Section]
		unneeded[s.Section] = (known || !ok) && (slices.Contains(without, hook) || canHide && isLater(kind, kinds[hook]))
	}
	return unneeded
}

// isLater reports whether a kind of a hook is hidden: if the hook has btf, and no kinds after it but raw
// and tp. A kind that stays would otherwise be tried before a hidden one.
func isLater(kind string, all []string) bool {
	isUsual := func(kind string) bool { return slices.Contains([]string{"fentry", "btf", "raw", "tp"}, kind) }
	return (kind == "raw" || kind == "tp") && slices.Contains(all, "btf") && !slices.ContainsFunc(all, func(kind string) bool { return !isUsual(kind) })
}

// hideSection sets the type of a section of a 64-bit object to SHT_NULL.
func hideSection(object []byte, section int) {
	const tableAt, headerSize, typeAt = 0x28, 64, 4
	table := binary.LittleEndian.Uint64(object[tableAt:])
	binary.LittleEndian.PutUint32(object[table+uint64(section*headerSize+typeAt):], uint32(elf.SHT_NULL))
}

// addLater adds the programs that HideUnneeded has hidden to the object, once.
func addLater(spec *ebpf.CollectionSpec, o *Options) error {
	if o.Rest == nil || !canHide() {
		return nil
	}
	rest, err := o.Rest()
	if err != nil {
		return fmt.Errorf("decode all programs: %w", err)
	}
	o.Rest = nil
	for name, v := range spec.Variables {
		rest.Variables[name] = v
	}
	fold(rest, o.constantsOf(rest), o.replaced())
	dropUnused(rest)
	useMulti(rest, o)
	for name, prog := range rest.Programs {
		if spec.Programs[name] == nil {
			spec.Programs[name] = prog
		}
	}
	return nil
}

// laterVariants returns the variants of a hook that HideUnneeded has hidden.
func (o *Objects) laterVariants(h Hook) ([]Variant, error) {
	if !slices.ContainsFunc(h.Variants, func(v Variant) bool { return v.Kind == "btf" }) {
		return nil, nil
	}
	if err := addLater(o.spec, &o.options); err != nil {
		return nil, err
	}
	hooks, err := o.Hooks()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(hooks, func(all Hook) bool { return all.Name == h.Name })
	return slices.DeleteFunc(hooks[i].Variants, func(v Variant) bool {
		return slices.ContainsFunc(h.Variants, func(tried Variant) bool { return tried.Kind == v.Kind })
	}), nil
}
