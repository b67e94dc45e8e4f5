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
	Runs bool   `json:"runs" help:"whether the tool runs on this machine"`
	// Hooks lists the attach types that were tried. It is empty if the test failed before that.
	Hooks  []Explanation `json:"hooks" help:"attach types of all hooks, in the order in which they are tried; empty if the test failed before that"`
	Error  string        `json:"error,omitempty" help:"why the tool does not run"`
	Remedy string        `json:"remedy,omitempty" help:"what to do about the error"`
	Code   uint64        `json:"exit_code" help:"exit code that the tool would have: 0; 3 not permitted; 4 not supported by this kernel; otherwise 1"`
}

// NeedsArguments reports whether the tool cannot run without arguments, and so cannot be tried.
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
	return missingHook(tried, slices.Concat(p.Optional, replaceable(tried, p.StandIns)))
}

// replaceable returns the hooks that need not work, because their stand-in works, or the hook that
// they replace.
func replaceable(tried map[string][]probe.Attempt, pairs []StandIn) []string {
	var hooks []string
	for _, s := range pairs {
		if works(tried[s.Hook]) {
			hooks = append(hooks, s.For)
		}
		if works(tried[s.For]) {
			hooks = append(hooks, s.Hook)
		}
	}
	return hooks
}

// missingHook returns the error of the first required hook that does not work, as attaching would.
// If all hooks are optional and none works, it returns the error of the first one.
func missingHook(tried map[string][]probe.Attempt, optional []string) error {
	var firstErr *probe.HookError
	attached := len(tried) == 0
	for _, hook := range slices.Sorted(maps.Keys(tried)) {
		err := &probe.HookError{Hook: hook, Tried: tried[hook]}
		switch {
		case works(tried[hook]):
			attached = true
		case !slices.Contains(optional, hook):
			return err
		case firstErr == nil:
			firstErr = err
		}
	}
	if !attached {
		return firstErr
	}
	return nil
}
