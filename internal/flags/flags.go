// Package flags turns the fields of option structs into command-line flags and
// into the variables of BPF programs.
//
//	Failed bool `flag:"failed,x" bpf:"targ_failed" help:"failed opens only"`
//
//	flag   long name, short name
//	bpf    the variable in the BPF object that takes the value, or what the value's
//	       method Variable returns; a string also sets VAR_len where there is one
//	arg    what the value is called in the help; a type's own name without it
//	also   another long name, hidden
//	pos    the field is a positional argument of this name, in the fields' order; the
//	       last one, if it is a list and its name ends with "...", takes all that follow
//	help   one line
//
// Underscores and dashes in long names are the same, as BCC's tools have both.
package flags

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/pflag"
)

// ErrUsage is returned for a command line that cannot be understood.
var ErrUsage = errors.New("usage")

// Usage makes an error an ErrUsage, and nil of nil.
func Usage(err error) error {
	if err == nil {
		return nil
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
}

type position struct {
	name string
	help string
	set  func(string) error
}

// New returns an empty set for the tool of that name.
func New(name string) *Set {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() {}
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	return &Set{flags: fs, vars: map[string]func() any{}, flagOf: map[string]string{}}
}

// Add makes flags of the fields of *opts. shorts gives or takes ("") a field's
// short name by its long one, as these differ between tools.
func (s *Set) Add(opts any, shorts map[string]string) error {
	return s.addStruct(reflect.ValueOf(opts).Elem(), shorts)
}

func (s *Set) addStruct(v reflect.Value, shorts map[string]string) error {
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
	val, err := valueOf(v, f.Tag.Get("arg"))
	if err != nil {
		return err
	}
	if isPos {
		s.positions = append(s.positions, position{pos, f.Tag.Get("help"), val.Set})
	}
	if !isFlag {
		return nil
	}
	name, short, _ := strings.Cut(tag, ",")
	if given, ok := shorts[name]; ok {
		short = given
	}
	if err := s.checkFree(name, f.Tag.Get("also"), short); err != nil {
		return err
	}
	s.addFlag(val, name, short, f)
	return nil
}

// checkFree returns an error for names that are taken or cannot be.
func (s *Set) checkFree(name, also, short string) error {
	if name == "" || len(short) > 1 {
		return fmt.Errorf("flag %q, %q: no long name, or a short one of more than a letter", name, short)
	}
	for _, long := range []string{name, also} {
		if s.flags.Lookup(long) != nil {
			return fmt.Errorf("--%s is there already", long)
		}
	}
	if short != "" && s.flags.ShorthandLookup(short) != nil {
		return fmt.Errorf("-%s is there already", short)
	}
	return nil
}

func (s *Set) addFlag(val pflag.Value, name, short string, f reflect.StructField) {
	flag := s.flags.VarPF(val, name, short, f.Tag.Get("help"))
	if val.Type() == "bool" {
		flag.NoOptDefVal = "true"
	}
	if also := f.Tag.Get("also"); also != "" {
		other := s.flags.VarPF(val, also, "", f.Tag.Get("help"))
		other.NoOptDefVal = flag.NoOptDefVal
		other.Hidden = true
		flag.Annotations = map[string][]string{annotationAlso: {also}}
	}
}

// Describe gives a flag another line of help.
func (s *Set) Describe(name, help string) { s.flags.Lookup(name).Usage = help }

// Parse reads the arguments into the structs.
//
// Returns ErrHelp or ErrUsage.
func (s *Set) Parse(args []string) error {
	if err := s.flags.Parse(args); err != nil {
		if errors.Is(err, ErrHelp) {
			return err
		}
		return Usage(err)
	}
	rest := s.flags.Args()
	for i, arg := range rest {
		p := s.position(i)
		if p == nil {
			return fmt.Errorf("%w: %q is one argument too many", ErrUsage, arg)
		}
		if err := p.set(arg); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrUsage, p.name, err)
		}
	}
	return nil
}

// variable is what a flag's value is to the programs.
func variable(val any) any {
	if v, ok := val.(interface{ Variable() any }); ok {
		return v.Variable()
	}
	return val
}

// position returns what takes the i-th argument, or nil.
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

// Variables returns what the flags set in the BPF object, by variable.
func (s *Set) Variables() map[string]any {
	out := make(map[string]any, len(s.vars))
	for name, get := range s.vars {
		out[name] = get()
	}
	return out
}

// annotationAlso is where a flag keeps its other long name.
const annotationAlso = "also"

// FlagOf returns the long name of the flag that sets a variable, or the variable's.
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
}

// All lists the flags in the order in which they were added, then the positional arguments.
func (s *Set) All() []Flag {
	var out []Flag
	s.flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		flag := Flag{Long: f.Name, Short: f.Shorthand, Help: f.Usage, Default: f.DefValue}
		if f.Value.Type() != "bool" {
			flag.Arg = f.Value.Type()
		}
		if also := f.Annotations[annotationAlso]; len(also) > 0 {
			flag.Also = also[0]
		}
		out = append(out, flag)
	})
	for _, p := range s.positions {
		out = append(out, Flag{Position: p.name, Help: p.help})
	}
	return out
}
