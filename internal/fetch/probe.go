// Package fetch implements probes with arguments for trace and argdist. A probe and the expressions
// to fetch become instances of BPF programs with a generated body of their function fetch(), and
// the bytes that fetch() writes are decoded to values.
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

// Function is the name of the BPF function whose body is generated (fetch.bpf.h).
const Function = "fetch"

// Probe is a parsed probe of the command line.
type Probe struct {
	Text string
	Spec target.Spec
	*compile.Clauses
	// isDefault means that the value is the return value because the user has named none.
	isDefault bool
	// Label is the name that the user has given to the probe, or "".
	Label string
}

// Parse parses a probe.
//
// It returns target.ErrSpec and compile.ErrSyntax.
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

// split separates the name of a probe from the rest. The parentheses of a Go method, such as
// main.(*T).Run, belong to the name.
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
	verbs := p.Verbs()
	if verbs != len(p.Items) {
		return fmt.Errorf("parse %q: %w: the format has %s, but the probe has %s",
			p.Text, compile.ErrSyntax, number(verbs, "verb"), number(len(p.Items), "value"))
	}
	return nil
}

// number returns a number of things, such as "1 verb" or "2 verbs".
func number(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Site is an attach point of a probe with the values to fetch.
type Site struct {
	target.Place
	Probe *Probe
	slots []slot
}

// slot is a value and its format.
type slot struct {
	compile.Slot
	as string
}

// Finder finds sites.
type Finder struct {
	target.Finder
	// Types are the types of the kernel, or nil.
	Types *btf.Spec
	// ModuleTypes, if set, returns the types of a kernel module.
	ModuleTypes func(module string) (*btf.Spec, error)
	// TextSize is the number of bytes fetched of a string.
	TextSize int
	// DataMax is the value of FETCH_DATA_MAX in the programs, in bytes.
	DataMax int
	// Binary makes STRCMP compare bytes: see compile.Scope.
	Binary bool
	// Calls means that the programs observe calls from entry to return: $latency and $entry.
	Calls bool

	flags map[string]int64 // of allocationFlags
	enums func(name string) (int64, bool)
}

// Set is the sites of a run, indexed by target_id().
type Set struct {
	Instances []probe.Instance
	Sites     []Site
	// Size is the number of bytes that fetch() writes.
	Size int
}

// Add finds the sites of a probe and compiles the expressions for each. Sites with the same code
// share an instance.
//
// It returns target.ErrNotFound and compile.ErrType.
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
			if g.code.Sleepable != nil {
				instances[i].Sleepable = map[string]asm.Instructions{Function: g.code.Sleepable}
			}
			g.addEntry(&instances[i])
		}
		set.Instances = append(set.Instances, instances...)
		for _, place := range places {
			set.Sites = append(set.Sites, Site{place, p, g.slots})
		}
		set.Size = max(set.Size, g.code.Size)
	}
	return nil
}

// group is a set of attach points with the same code.
type group struct {
	places []target.Place
	code   *compile.Result
	slots  []slot
	entry  *compile.Result // nil if the probe does not observe the entry of calls
}

// addEntry adds the code for the entry of calls to an instance.
func (g *group) addEntry(in *probe.Instance) {
	if g.entry == nil {
		return
	}
	in.Functions[entryFunction] = g.entry.Body
	if in.Sleepable != nil {
		in.Sleepable[entryFunction] = g.entry.Body
	}
}

// groups compiles the expressions for each attach point. For a pattern, it omits attach points
// without the arguments, and returns an error only if none remains.
func (f *Finder) groups(p *Probe, places []target.Place) ([]*group, error) {
	index := map[string]int{}
	var out []*group
	var errs error
	for _, place := range places {
		code, slots, entry, err := f.compile(p, &place)
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("%s: %w", place.Name, err))
			continue
		}
		key := fmt.Sprint(code.Body)
		if place.IsCall = entry != nil; place.IsCall {
			key += fmt.Sprint(entry.Body)
		}
		i, ok := index[key]
		if !ok {
			i = len(out)
			index[key] = i
			out = append(out, &group{code: code, slots: slots, entry: entry})
		}
		out[i].places = append(out[i].places, place)
	}
	if len(out) == 0 || errs != nil && !p.Spec.IsPattern() {
		return nil, errs
	}
	return out, nil
}

// compile compiles the expressions for an attach point.
func (f *Finder) compile(p *Probe, place *target.Place) (*compile.Result, []slot, *compile.Result, error) {
	scope, err := f.scope(p, place)
	if err != nil {
		return nil, nil, nil, err
	}
	call, err := f.addCall(scope, p, place)
	if err != nil {
		return nil, nil, nil, err
	}
	program := &compile.Program{Where: p.Where, TextSize: f.TextSize}
	for i := range p.Items {
		isText, err := p.isText(i, scope)
		if err != nil {
			return nil, nil, nil, err
		}
		expr, err := p.typed(i, scope)
		if err != nil {
			return nil, nil, nil, err
		}
		program.Fields = append(program.Fields, compile.Field{Name: p.name(i), Expr: expr, Text: isText})
	}
	code, err := compile.Compile(Function, program, scope)
	if err != nil {
		return nil, nil, nil, err
	}
	if code.BufferSize > f.DataMax {
		return nil, nil, nil, fmt.Errorf("%w: the values need %d bytes, more than the limit of %d (fetch fewer values or shorter strings)", compile.ErrType, code.BufferSize, f.DataMax)
	}
	var slots []slot
	for i, s := range code.Slots {
		slots = append(slots, slot{s, p.as(i)})
	}
	entry, err := call.compile()
	return code, slots, entry, err
}

// name returns the name of an item: its text, with the format appended if the text is not unique.
func (p *Probe) name(i int) string {
	source := p.Items[i].Source
	for _, before := range p.Items[:i] {
		if before.Source == source {
			return source + ":" + p.as(i)
		}
	}
	return source
}

// as returns the format of an item that the user has requested.
func (p *Probe) as(i int) string {
	if p.Format == "" {
		return p.Items[i].As
	}
	if v := p.verb(i); v != nil {
		return string(v.verb)
	}
	return ""
}

// verb returns the verb of the format for an item, or nil.
func (p *Probe) verb(i int) *part {
	for _, part := range parseFormat(p.Format) {
		if part.verb == 0 {
			continue
		}
		if i == 0 {
			return &part
		}
		i--
	}
	return nil
}

// typed returns the expression of an item. If its type is unknown, it gets the C type of its verb:
// the upper half of a register that contains an int is not part of the value.
func (p *Probe) typed(i int, scope *compile.Scope) (compile.Expr, error) {
	expr := p.Items[i].Expr
	v := p.verb(i)
	if v == nil || v.kind() == "" || !compile.IsUntyped(expr, scope) {
		return expr, nil
	}
	return compile.Cast(v.kind(), expr)
}

// isText reports whether an item is a string: because the user has requested that, or because it
// has no format and its elements are of type char.
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
