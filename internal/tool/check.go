package tool

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/value"
)

// Check returns all errors in the definition of a tool, without a kernel: in its texts, flags and
// columns, the layout of its types, and the names of its programs.
func Check(t *Tool) error {
	errs := []error{checkSpec(&t.Spec)}
	f, err := t.facts()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	errs = append(errs, f.checkAliases(), f.checkFlags(), f.checkVariables(), f.checkColumns(), f.checkHooks(), f.checkExamples())
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err = t.Schema()
	return err
}

func checkSpec(s *Spec) error {
	var errs []error
	if !regexp.MustCompile(`^[a-z][a-z0-9]*$`).MatchString(s.Name) {
		errs = append(errs, fmt.Errorf("name %q must consist of lowercase letters and digits", s.Name))
	}
	alias := regexp.MustCompile(`^[a-z][a-z0-9]*([-_][a-z0-9]+)*$`)
	for _, a := range s.Also {
		if !alias.MatchString(a.Name) {
			errs = append(errs, fmt.Errorf("name %q must consist of lowercase letters, digits, and single hyphens or underscores", a.Name))
		}
	}
	for what, text := range map[string]string{"category": s.Category, "summary": s.Summary, "description": s.Description} {
		if text == "" {
			errs = append(errs, fmt.Errorf("missing %s", what))
		}
	}
	if strings.HasSuffix(s.Summary, ".") || strings.Contains(s.Summary, "\n") {
		errs = append(errs, errors.New("the summary must be one line without a full stop"))
	}
	if len(s.Examples) == 0 {
		errs = append(errs, errors.New("missing examples"))
	}
	return errors.Join(errs...)
}

func (f *facts) checkAliases() error {
	var errs []error
	for _, a := range f.tool.Also {
		if _, err := f.tool.As(a.Name).Facts(); err != nil {
			errs = append(errs, fmt.Errorf("alias %s: %w", a.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (f *facts) checkFlags() error {
	var errs []error
	name := regexp.MustCompile(`^[a-z][a-z0-9]*([-_][a-z0-9]+)*$`)
	for _, g := range f.Flags {
		for _, flag := range g.Flags {
			if flag.Help == "" {
				errs = append(errs, fmt.Errorf("flag %s%s has no help", flag.Long, flag.Position))
			}
			if (flag.Long == "interval" || flag.Position == "interval") && flag.Arg != "N" && flag.Allowed == "" && !strings.Contains(flag.Help, "at least") {
				errs = append(errs, fmt.Errorf("flag %s%s has no minimum", flag.Long, flag.Position))
			}
			if flag.Long != "" && !name.MatchString(flag.Long) {
				errs = append(errs, fmt.Errorf("flag --%s must consist of lowercase letters, digits and dashes", flag.Long))
			}
		}
	}
	return errors.Join(errs...)
}

// checkVariables checks that the object has the variables that flags and columns set.
func (f *facts) checkVariables() error {
	names := slices.Collect(maps.Keys(f.line.set.Variables()))
	for _, c := range f.Columns {
		if c.Need != "" {
			names = append(names, c.Need)
		}
	}
	if f.tool.Tasks {
		names = append(names, "task_filter")
	}
	var errs []error
	for _, name := range names {
		if f.spec.Variables[name] == nil {
			errs = append(errs, fmt.Errorf("the object has no variable %s", name))
		}
	}
	return errors.Join(errs...)
}

func (f *facts) checkColumns() error {
	var errs []error
	seen := map[string]bool{"type": true}
	for _, c := range append(slices.Clone(f.Keys), f.Columns...) {
		switch {
		case seen[c.Key]:
			errs = append(errs, fmt.Errorf("column %s is defined twice", c.Key))
		case c.Help == "":
			errs = append(errs, fmt.Errorf("column %s has no help", c.Key))
		}
		seen[c.Key] = true
		errs = append(errs, checkUnit(&c))
	}
	_, err := column.Select(append(slices.Clone(f.Keys), f.Columns...), f.Text, nil)
	return errors.Join(append(errs, err)...)
}

// checkUnit checks that a key ends with the unit of its values.
func checkUnit(c *column.Column) error {
	var unit string
	switch c.Value.(type) {
	case *value.Nanoseconds:
		unit = "ns"
	case *value.Size:
		unit = "bytes"
	default:
		return nil
	}
	if c.Key != unit && !strings.HasSuffix(c.Key, "_"+unit) {
		return fmt.Errorf("column %s does not end with its unit, %s", c.Key, unit)
	}
	return nil
}

// checkHooks checks that the attach type in the name of a program is that of its section.
func (f *facts) checkHooks() error {
	var errs []error
	if len(f.Hooks)+len(f.Iterators) == 0 && !f.tool.NoPrograms {
		errs = append(errs, errors.New("the object has no programs"))
	}
	kinds := map[string][]string{
		"fentry": {"fentry", "fexit", "fmod_ret"}, "btf": {"tp_btf"}, "raw": {"raw_tp"},
		"tp": {"tp", "tracepoint"}, "kprobe": {"kprobe", "kretprobe"}, "uprobe": {"uprobe", "uretprobe"},
		"usdt":  {"usdt"},
		"multi": {"kprobe.multi", "kretprobe.multi", "uprobe.multi", "uretprobe.multi"},
	}
	for _, h := range f.Hooks {
		for _, v := range h.Variants {
			for _, section := range v.Where {
				kind, _, _ := strings.Cut(section, "/")
				if allowed := kinds[v.Kind]; allowed != nil && !slices.Contains(allowed, kind) {
					errs = append(errs, fmt.Errorf("program %s__%s is in section %s", h.Name, v.Kind, section))
				}
			}
		}
	}
	if hasReturns := probe.HasReturns(f.spec); hasReturns != f.tool.Returns {
		errs = append(errs, fmt.Errorf("field Returns is %t, but whether the object has programs for returns of user functions is %t",
			f.tool.Returns, hasReturns))
	}
	return errors.Join(append(errs, f.checkHookNames())...)
}

func (f *facts) checkHookNames() error {
	var errs []error
	names := append(slices.Clone(f.Without), f.Optional...)
	for _, s := range f.StandIns {
		names = append(names, s.Hook, s.For)
	}
	for _, c := range f.Columns {
		names = append(names, c.Hooks...)
	}
	for _, name := range names {
		if !slices.ContainsFunc(f.Hooks, func(h probe.Hook) bool { return h.Name == name }) && !isIterator(f.spec.Programs[name]) {
			errs = append(errs, fmt.Errorf("the object has no hook %s", name))
		}
	}
	for _, name := range probe.FileNames(f.spec) {
		if _, ok := f.files[name]; !ok {
			errs = append(errs, fmt.Errorf("the plan defines no files for %s", name))
		}
	}
	return errors.Join(errs...)
}
