package tool

import (
	"errors"
	"maps"
	"slices"

	"github.com/corescope/corescope/internal/doctor"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/probe"
)

// Trial is the result of trying a tool without options on this machine.
type Trial struct {
	Name string `json:"name" help:"name of the tool"`
	Runs bool   `json:"runs" help:"it runs here"`
	// Hooks are the ways that were tried. None are where it came to none.
	Hooks  []Explanation `json:"hooks" help:"every way to every hook, best first; none where it did not come to that"`
	Error  string        `json:"error,omitempty" help:"why it does not run"`
	Remedy string        `json:"remedy,omitempty" help:"what can be done about it"`
	// Code is what the tool would exit with.
	Code uint64 `json:"exit_code" help:"what it would exit with: 0, 3 not permitted, 4 this kernel cannot, 1 else"`
}

// NeedsArguments tells that the tool does nothing without: there is no run of it to try.
func (t *Tool) NeedsArguments() bool {
	l, err := t.parse(nil)
	if err != nil {
		return errors.Is(err, flags.ErrUsage)
	}
	src, env, err := l.source()
	if err == nil && src.Base().Resolve != nil {
		err = src.Base().Resolve(src.Base(), env.kernel)
	}
	return errors.Is(err, flags.ErrUsage)
}

// Try loads and attaches every attach type of every hook of the tool, as --explain does, and
// detaches them again. args are further arguments of the tool, such as --btf.
func (t *Tool) Try(f *doctor.Facts, args ...string) *Trial {
	trial := &Trial{Name: t.Name, Hooks: []Explanation{}}
	err := t.try(trial, args)
	trial.Code, trial.Runs = uint64(exitCode(err)), err == nil
	if err != nil {
		trial.Error, trial.Remedy = err.Error(), doctor.Remedy(err, f, t.Needs())
	}
	return trial
}

func (t *Tool) try(trial *Trial, args []string) error {
	l, err := t.parse(args)
	if err != nil {
		return err
	}
	src, env, err := l.source()
	if err != nil {
		return err
	}
	s, err := t.open(l, src, env, func(error) {})
	if err != nil {
		return err
	}
	defer s.Objects.Close()
	tried, err := s.Objects.Explain()
	if err != nil {
		return err
	}
	p := src.Base()
	trial.Hooks = explainAll(tried, p.StandIns)
	return missingHook(tried, slices.Concat(p.Optional, excused(tried, p.StandIns)))
}

// excused are the hooks that there need be no way to, as there is one to their stand-in or
// to what they stand in for.
func excused(tried map[string][]probe.Attempt, pairs []StandIn) []string {
	var Out []string
	for _, s := range pairs {
		if works(tried[s.Hook]) {
			Out = append(Out, s.For)
		}
		if works(tried[s.For]) {
			Out = append(Out, s.Hook)
		}
	}
	return Out
}

// missingHook is the error of the first hook that there is no way to and that the tool
// cannot do without, as attaching would have it.
func missingHook(tried map[string][]probe.Attempt, optional []string) error {
	var missed *probe.HookError
	attached := len(tried) == 0
	for _, hook := range slices.Sorted(maps.Keys(tried)) {
		err := &probe.HookError{Hook: hook, Tried: tried[hook]}
		switch {
		case works(tried[hook]):
			attached = true
		case !slices.Contains(optional, hook):
			return err
		case missed == nil:
			missed = err
		}
	}
	if !attached {
		return missed
	}
	return nil
}
