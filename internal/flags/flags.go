// Package flags maps the fields of option structs to command-line flags and to variables of BPF
// programs.
//
//	Failed bool `flag:"failed,x" bpf:"targ_failed" help:"failed opens only"`
//
//	flag   long name, short name
//	bpf    the variable in the BPF object that is set to the value, or to the result of the
//	       value's method Variable; a string also sets VAR_len if the object has it
//	arg    the name of the value in the help; by default it depends on the type
//	also   another long name, hidden
//	bare   the value if the flag is given without one, at the end or before another flag
//	zero   "none": 0 is the same as no flag
//	min    the smallest allowed number, max the largest
//	of     the allowed texts, separated by commas
//	id     the number identifies a process, thread or cpu of this machine, which must exist
//	       when the run starts (see [Set.IDs])
//	pos    the field is a positional argument of this name; the order is that of the fields. If
//	       the last one is a list whose name ends with "...", it takes all remaining arguments.
//	       With the tag flag too, only one of the two can be given
//	skip   "others": a positional argument with the tag of is left out if the command line has none
//	       of its texts there
//	sets   the other flag that this one is short for: "output=csv" for a bool, or "duration" for
//	       the same value. A different value of the other flag is refused
//	help   one line
//	unset  added to the help if the field has no default
//
// Underscores and dashes in long names are equivalent, because tools of BCC use both. A long name can
// be abbreviated as long as it is unambiguous, as argparse and argp accept it. A flag with one value can
// be repeated only with the same value; a list takes the values of all.
package flags

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// ErrUsage is returned for an invalid command line.
var ErrUsage = errors.New("usage")

// Usage wraps an error as ErrUsage. It returns nil for nil, and does not wrap an error that says by a
// method IsOfMachine that the machine, not the command line, is the cause.
func Usage(err error) error {
	var of interface{ IsOfMachine() bool }
	if err == nil || errors.As(err, &of) && of.IsOfMachine() {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUsage, err)
}

// ErrHelp is returned when the command line asks for help.
var ErrHelp = pflag.ErrHelp

// Set is the flags and positional arguments of one run.
type Set struct {
	flags     *pflag.FlagSet
	positions []position
	vars      map[string]func() any
	flagOf    map[string]string
	allowed   map[string]string // by flag
	ids       []func() IDs
	synonyms  []synonym
	checks    []checker
	bare      map[string]string // "--long" or "-s"
	parsing   bool              // long names can be abbreviations
}

type position struct {
	name, help, allowed, def string
	flag, also               string // long names of the flag for the same value, or ""
	set                      func(string) error
	only                     []string // if set, the argument is left out unless it is one of these
}

// checker is a struct of options that validates several fields together. Its error names the flags,
// their values and the allowed values.
type checker interface{ Check() error }

// New returns an empty set for the tool with this name.
func New(name string) *Set {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	s := &Set{flags: fs, vars: map[string]func() any{}, flagOf: map[string]string{}, allowed: map[string]string{}, bare: map[string]string{}}
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(s.complete(strings.ReplaceAll(name, "_", "-")))
	})
	return s
}

// Add adds flags for the fields of *opts. shorts replaces or removes ("") short names; its keys are
// the long names. If *opts or an embedded struct has a method Check() error, Parse calls it last.
func (s *Set) Add(opts any, shorts map[string]string) error {
	return s.addStruct(reflect.ValueOf(opts).Elem(), shorts)
}

func (s *Set) addStruct(v reflect.Value, shorts map[string]string) error {
	if v.Addr().CanInterface() {
		if c, ok := v.Addr().Interface().(checker); ok {
			s.checks = append(s.checks, c)
		}
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			if err := s.addStruct(v.Field(i), shorts); err != nil {
				return err
			}
			continue
		}
		if err := s.addField(f, v.Field(i), shorts); err != nil {
			return fmt.Errorf("add flag of %s: %w", f.Name, err)
		}
	}
	return nil
}

func (s *Set) addField(f reflect.StructField, v reflect.Value, shorts map[string]string) error {
	if !f.IsExported() {
		if f.Tag != "" {
			return errors.New("only exported fields can be flags")
		}
		return nil
	}
	if name := f.Tag.Get("bpf"); name != "" {
		s.vars[name] = func() any { return variable(v.Interface()) }
		s.flagOf[name], _, _ = strings.Cut(f.Tag.Get("flag"), ",")
	}
	tag, isFlag := f.Tag.Lookup("flag")
	pos, isPos := f.Tag.Lookup("pos")
	if !isFlag && !isPos {
		return nil
	}
	val, err := valueOf(v, f)
	if err != nil {
		return err
	}
	name, short, _ := strings.Cut(tag, ",")
	s.addSynonym(val, name, pos, f.Tag.Get("sets"))
	if isPos {
		var only []string
		if f.Tag.Get("skip") == "others" {
			only = val.bounds.allowed
		}
		s.positions = append(s.positions, position{pos, helpOf(f, v), val.bounds.String(), val.String(), name, f.Tag.Get("also"), val.Set, only})
	}
	if !isFlag {
		return nil
	}
	if replacement, ok := shorts[name]; ok {
		short = replacement
	}
	if err := s.checkFree(name, f.Tag.Get("also"), short); err != nil {
		return err
	}
	s.addFlag(val, name, short, helpOf(f, v), f)
	s.addBare(name, short, f.Tag.Get("bare"))
	s.allowed[name] = val.bounds.String()
	return s.addIDs(v, name, f.Tag.Get("id"))
}

// checkFree returns an error for names that are invalid or in use.
func (s *Set) checkFree(name, also, short string) error {
	if name == "" || len(short) > 1 {
		return fmt.Errorf("flag %q, %q: the long name must not be empty, and the short name must be one letter", name, short)
	}
	for _, long := range []string{name, also} {
		if s.flags.Lookup(long) != nil {
			return fmt.Errorf("--%s is defined twice", long)
		}
	}
	if short != "" && s.flags.ShorthandLookup(short) != nil {
		return fmt.Errorf("-%s is defined twice", short)
	}
	return nil
}

// helpOf returns the help of a field, which depends on whether it has a default.
func helpOf(f reflect.StructField, v reflect.Value) string {
	help := f.Tag.Get("help")
	if unset := f.Tag.Get("unset"); unset != "" && v.IsZero() {
		help += "; " + unset
	}
	return help
}

func (s *Set) addFlag(val pflag.Value, name, short, help string, f reflect.StructField) {
	flag := s.flags.VarPF(val, name, short, help)
	if val.Type() == "bool" {
		flag.NoOptDefVal = "true"
	}
	if also := f.Tag.Get("also"); also != "" {
		other := s.flags.VarPF(val, also, "", help)
		other.NoOptDefVal = flag.NoOptDefVal
		other.Hidden = true
		flag.Annotations = map[string][]string{annotationAlso: {also}}
	}
}

// Describe replaces the help of a flag.
func (s *Set) Describe(name, help string) { s.flags.Lookup(name).Usage = help }

// Parse parses the arguments into the structs. It returns ErrHelp or ErrUsage.
func (s *Set) Parse(args []string) error {
	s.parsing = true
	err := s.flags.Parse(s.withValues(args))
	s.parsing = false
	if errors.Is(err, ErrHelp) {
		return err
	}
	if err != nil {
		return Usage(s.explainUnknown(err))
	}
	next := 0
	for _, arg := range s.flags.Args() {
		p := s.position(next)
		for p != nil && p.only != nil && !slices.Contains(p.only, arg) {
			next++
			p = s.position(next)
		}
		next++
		if p == nil {
			return fmt.Errorf("%w: unexpected argument %q", ErrUsage, arg)
		}
		if flag := s.given(p.flag, p.also); flag != nil {
			return fmt.Errorf("%w: --%s %s and argument %q for %s cannot be combined: they set the same value", ErrUsage, flag.Name, flag.Value, arg, p.name)
		}
		if err := p.set(arg); err != nil {
			return fmt.Errorf("%w: invalid argument %q for %s: %w", ErrUsage, arg, p.name, err)
		}
	}
	if err := s.setSynonyms(); err != nil {
		return Usage(err)
	}
	for _, c := range s.checks {
		if err := c.Check(); err != nil {
			return Usage(err)
		}
	}
	return nil
}

// given returns the first of the flags that the command line sets, or nil.
func (s *Set) given(names ...string) *pflag.Flag {
	for _, name := range names {
		if flag := s.flags.Lookup(name); name != "" && flag != nil && flag.Changed {
			return flag
		}
	}
	return nil
}

// variable converts the value of a flag to the value of the BPF variable.
func variable(val any) any {
	if v, ok := val.(interface{ Variable() any }); ok {
		return v.Variable()
	}
	return val
}

// Fix removes the first n positional arguments, which are set already.
func (s *Set) Fix(n int) { s.positions = s.positions[min(n, len(s.positions)):] }

// Positional returns the number of positional arguments that Parse has set.
func (s *Set) Positional() int { return s.flags.NArg() }

// position returns the positional argument that the i-th argument sets, or nil.
func (s *Set) position(i int) *position {
	last := len(s.positions) - 1
	if i > last && last >= 0 && strings.HasSuffix(s.positions[last].name, "...") {
		i = last
	}
	if i > last {
		return nil
	}
	return &s.positions[i]
}

// Variables returns the values of the variables in the BPF object that flags set, by name.
func (s *Set) Variables() map[string]any {
	out := make(map[string]any, len(s.vars))
	for name, get := range s.vars {
		out[name] = get()
	}
	return out
}

// annotationAlso is the key of the pflag annotation with the other long name of a flag.
const annotationAlso = "also"

// FlagOf returns the long name of the flag that sets a variable, or the name of the variable.
func (s *Set) FlagOf(variable string) string {
	if name := s.flagOf[variable]; name != "" {
		return name
	}
	return variable
}

// Flag describes one flag, or a positional argument when Long is "".
type Flag struct {
	Long, Short, Arg, Default, Help string
	// Also is the other long name.
	Also     string
	Position string
	// Allowed is the allowed values as a part of a sentence: "at least 1".
	Allowed string
}

// All lists the flags in the order in which they were added, then the positional arguments.
func (s *Set) All() []Flag {
	var out []Flag
	s.flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		flag := Flag{Long: f.Name, Short: f.Shorthand, Help: f.Usage, Default: f.DefValue, Allowed: s.allowed[f.Name]}
		if f.Value.Type() != "bool" {
			flag.Arg = f.Value.Type()
		}
		if also := f.Annotations[annotationAlso]; len(also) > 0 {
			flag.Also = also[0]
		}
		out = append(out, flag)
	})
	for _, p := range s.positions {
		out = append(out, Flag{Position: p.name, Help: p.help, Allowed: p.allowed, Default: p.def})
	}
	return out
}
