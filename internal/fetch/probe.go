// Package fetch is what trace and argdist are made of: a probe as the user writes it, with
// what to fetch of it, becomes instances of BPF programs with a body for their function
// fetch(), and what that has written becomes values again.
package fetch

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/compile"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/target"
)

// Function is the one of the programs that is given a body (fetch.bpf.h).
const Function = "fetch"

// DataMax is FETCH_DATA_MAX of fetch.bpf.h, where a tool does not set another.
const DataMax = 272

// Probe is a probe as the user wrote it.
type Probe struct {
	Text string
	Spec target.Spec
	*compile.Clauses
	// Label is what a user calls it, or "".
	Label string
}

// Parse reads a probe.
//
// Returns target.ErrSpec and compile.ErrSyntax.
func Parse(text string) (*Probe, error) {
	name, rest := split(text)
	spec, err := target.Parse(name, false)
	if err != nil {
		return nil, err
	}
	clauses, err := compile.ParseClauses(rest)
	if err != nil {
		return nil, fmt.Errorf("parse %q: %w", text, err)
	}
	p := &Probe{Text: text, Spec: spec, Clauses: clauses}
	for _, item := range p.Items {
		if compile.IsName(item.Expr, "return") { // ksnoop's word
			p.Spec.Return = true
		}
	}
	return p, p.checkFormat()
}

// split parts the name of a probe from what is behind it. The parenthesis of a method of
// Go's, as main.(*T).Run, belongs to its name.
func split(text string) (name, rest string) {
	text = strings.TrimSpace(text)
	for i := range len(text) {
		if text[i] == ' ' || text[i] == '\t' || text[i] == '(' && (i == 0 || text[i-1] != '.') {
			return text[:i], text[i:]
		}
	}
	return text, ""
}

func (p *Probe) checkFormat() error {
	if p.Format == "" {
		return nil
	}
	verbs := 0
	for _, part := range parseFormat(p.Format) {
		if part.verb != 0 {
			verbs++
		}
	}
	if verbs != len(p.Items) {
		return fmt.Errorf("parse %q: %w: the format has %d verbs, and there are %d values", p.Text, compile.ErrSyntax, verbs, len(p.Items))
	}
	return nil
}

// Site is a place that a probe is attached to, and what is fetched there.
type Site struct {
	target.Place
	Probe *Probe
	slots []slot
}

// slot is a value and how it is shown.
type slot struct {
	compile.Slot
	as string
}

// Finder finds sites.
type Finder struct {
	target.Finder
	// Types are the kernel's, or nil.
	Types *btf.Spec
	// TextSize is how many bytes of a string are fetched.
	TextSize int
	// Room is FETCH_DATA_MAX of the programs.
	Room int
}

// Set is the sites of a run, by the numbers that target_id() gives.
type Set struct {
	Instances []probe.Instance
	Sites     []Site
	// Size is how much of what fetch() writes is of use.
	Size int
}

// Add finds the sites of a probe and compiles what is fetched there. Sites with the same
// code share an instance.
//
// Returns target.ErrNotFound and compile.ErrType.
func (f *Finder) Add(set *Set, p *Probe) error {
	places, err := f.Find(p.Spec)
	if err != nil {
		return err
	}
	groups, err := f.groups(p, places)
	if err != nil {
		return err
	}
	for _, g := range groups {
		instances, places := target.Instances(g.places, p.Spec.IsPattern())
		for i := range instances {
			instances[i].First += uint64(len(set.Sites))
			instances[i].Functions = map[string]asm.Instructions{Function: g.code.Body}
		}
		set.Instances = append(set.Instances, instances...)
		for _, place := range places {
			set.Sites = append(set.Sites, Site{place, p, g.slots})
		}
		set.Size = max(set.Size, g.code.Size)
	}
	return nil
}

// group is places with the same code.
type group struct {
	places []target.Place
	code   *compile.Result
	slots  []slot
}

// groups compiles for each place. Of a pattern it leaves out those that have no such
// arguments, unless none has.
func (f *Finder) groups(p *Probe, places []target.Place) ([]*group, error) {
	index := map[string]int{}
	var out []*group
	var errs error
	for _, place := range places {
		code, slots, err := f.compile(p, &place)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", place.Name, err))
			continue
		}
		key := fmt.Sprint(code.Body)
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key] = i
			out = append(out, &group{code: code, slots: slots})
		}
		out[i].places = append(out[i].places, place)
	}
	if len(out) == 0 || errs != nil && !p.Spec.IsPattern() {
		return nil, errs
	}
	return out, nil
}

// compile compiles what is wanted at a place.
func (f *Finder) compile(p *Probe, place *target.Place) (*compile.Result, []slot, error) {
	scope, err := f.scope(p, place)
	if err != nil {
		return nil, nil, err
	}
	program := &compile.Program{Where: p.Where, TextSize: f.TextSize}
	for i, item := range p.Items {
		isText, err := p.isText(i, scope)
		if err != nil {
			return nil, nil, err
		}
		program.Fields = append(program.Fields, compile.Field{Name: p.name(i), Expr: item.Expr, Text: isText})
	}
	code, err := compile.Compile(Function, program, scope)
	if err != nil {
		return nil, nil, err
	}
	if code.Room > f.Room {
		return nil, nil, fmt.Errorf("%w: it takes %d bytes, and there is room for %d: show less, or shorter strings", compile.ErrType, code.Room, f.Room)
	}
	var slots []slot
	for i, s := range code.Slots {
		slots = append(slots, slot{s, p.as(i)})
	}
	return code, slots, nil
}

// name is what an item is called: as it was written, and how it is shown if it is there
// twice.
func (p *Probe) name(i int) string {
	source := p.Items[i].Source
	for _, before := range p.Items[:i] {
		if before.Source == source {
			return source + ":" + p.as(i)
		}
	}
	return source
}

// as is how the user wants an item to be shown.
func (p *Probe) as(i int) string {
	if p.Format == "" {
		return p.Items[i].As
	}
	n := 0
	for _, part := range parseFormat(p.Format) {
		if part.verb == 0 {
			continue
		}
		if n == i {
			return string(part.verb)
		}
		n++
	}
	return ""
}

// isText tells whether an item is a string: if the user says so, or nothing, and it is of
// char.
func (p *Probe) isText(i int, scope *compile.Scope) (bool, error) {
	switch p.as(i) {
	case "str", "s":
		return true, nil
	case "", "v":
	default:
		return false, nil
	}
	return compile.IsText(p.Items[i].Expr, scope)
}
