package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// StandIn is a hook that is used if another hook cannot be attached.
type StandIn struct {
	// Lacks lists members of struct counters that only the replaced hook counts. They are absent
	// from the summary if the stand-in is used.
	Lacks     []string
	Hook, For string
	// Means describes the difference for the user. It is reported if the stand-in is used.
	Means string
}

// dropUnforced removes the other hook of a pair of hook and stand-in if the user forces an attach
// type of one of them.
func dropUnforced(hooks []Hook, pairs []StandIn, force []string) []Hook {
	named := func(hook string) bool {
		return slices.ContainsFunc(force, func(word string) bool { return strings.HasPrefix(word, hook+"=") })
	}
	return slices.DeleteFunc(hooks, func(h Hook) bool {
		return slices.ContainsFunc(pairs, func(s StandIn) bool {
			return h.Name == s.Hook && named(s.For) || h.Name == s.For && named(s.Hook)
		})
	})
}

// splitStandIns separates the hooks to attach from their stand-ins, which are returned by the name
// of the hook that they replace.
func (o *Objects) splitStandIns(hooks []Hook) (first []Hook, standIns map[string]Hook) {
	standIns = map[string]Hook{}
	for _, h := range hooks {
		i := slices.IndexFunc(o.options.StandIns, func(s StandIn) bool { return s.Hook == h.Name })
		if i >= 0 && slices.ContainsFunc(hooks, func(h Hook) bool { return h.Name == o.options.StandIns[i].For }) {
			standIns[o.options.StandIns[i].For] = h
			continue
		}
		first = append(first, h)
	}
	return first, standIns
}

// attachOrStandIn attaches a hook, or its stand-in if that fails.
func (o *Objects) attachOrStandIn(h Hook, standIns map[string]Hook) error {
	links, failed := len(o.links), len(o.FailedTargets)
	err := o.attachHook(h)
	standIn, ok := standIns[h.Name]
	var missing *HookError
	switch {
	case err == nil:
		o.notifyStandIn(h.Name)
		return nil
	case !ok || !errors.As(err, &missing) || missing.Unwrap() != nil:
		return err
	}
	o.rollBack(h, links, failed)
	if standInErr := o.attachHook(standIn); standInErr != nil {
		return fmt.Errorf("%w; %w", err, standInErr)
	}
	o.notifyStandIn(standIn.Name)
	return nil
}

// rollBack detaches and unloads the programs of a hook that was attached in part. links and failed
// are the lengths of o.links and o.FailedTargets before.
func (o *Objects) rollBack(h Hook, links, failed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.detached {
		closeTogether(o.links[links:])
		o.links = o.links[:links]
	}
	o.FailedTargets = o.FailedTargets[:failed]
	o.Tried[h.Name] = slices.DeleteFunc(o.Tried[h.Name], func(a Attempt) bool { return a.Err == nil })
	for name, prog := range o.programs {
		if base, _, _ := strings.Cut(name, targetSeparator); h.has(base) {
			prog.Close()
			delete(o.programs, name)
		}
	}
}

func (h *Hook) has(program string) bool {
	return slices.ContainsFunc(h.Variants, func(v Variant) bool { return slices.Contains(v.Programs, program) })
}

// notifyStandIn reports that the hook is used if it is a stand-in.
func (o *Objects) notifyStandIn(hook string) {
	for _, s := range o.options.StandIns {
		if s.Hook == hook {
			o.notify(fmt.Errorf("using hook %s instead of %s: %s", s.Hook, s.For, s.Means))
		}
	}
}
