package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// StandIn is a hook that is taken where another one cannot be had.
type StandIn struct {
	Hook, For string
	// Means says what is different then. It is told.
	Means string
}

// choose leaves out hooks that are forced away: of a hook and its stand-in who names one
// wants it.
func choose(hooks []Hook, pairs []StandIn, force []string) []Hook {
	named := func(hook string) bool {
		return slices.ContainsFunc(force, func(word string) bool { return strings.HasPrefix(word, hook+"=") })
	}
	return slices.DeleteFunc(hooks, func(h Hook) bool {
		return slices.ContainsFunc(pairs, func(s StandIn) bool {
			return h.Name == s.Hook && named(s.For) || h.Name == s.For && named(s.Hook)
		})
	})
}

// standIns parts the hooks into those to attach, and those that may have to stand in.
func (o *Objects) standIns(hooks []Hook) (first []Hook, others map[string]Hook) {
	others = map[string]Hook{}
	for _, h := range hooks {
		i := slices.IndexFunc(o.options.StandIns, func(s StandIn) bool { return s.Hook == h.Name })
		if i >= 0 && slices.ContainsFunc(hooks, func(h Hook) bool { return h.Name == o.options.StandIns[i].For }) {
			others[o.options.StandIns[i].For] = h
			continue
		}
		first = append(first, h)
	}
	return first, others
}

// attachEither attaches a hook, or what stands in for it.
func (o *Objects) attachEither(h Hook, others map[string]Hook) error {
	links, refused := len(o.links), len(o.Refused)
	err := o.attachHook(h)
	other, ok := others[h.Name]
	var missing *HookError
	switch {
	case err == nil:
		o.sayStandIn(h.Name)
		return nil
	case !ok || !errors.As(err, &missing) || missing.Unwrap() != nil:
		return err
	}
	o.takeBack(h, links, refused)
	if again := o.attachHook(other); again != nil {
		return fmt.Errorf("%w; %w", err, again)
	}
	o.sayStandIn(other.Name)
	return nil
}

// takeBack detaches what was attached of a hook that cannot be had as a whole, and unloads it.
func (o *Objects) takeBack(h Hook, links, refused int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.detached {
		closeTogether(o.links[links:])
		o.links = o.links[:links]
	}
	o.Refused = o.Refused[:refused]
	o.Tried[h.Name] = slices.DeleteFunc(o.Tried[h.Name], func(a Attempt) bool { return a.Err == nil })
	for name, prog := range o.programs {
		if own, _, _ := strings.Cut(name, forTarget); h.has(own) {
			prog.Close()
			delete(o.programs, name)
		}
	}
}

func (h *Hook) has(program string) bool {
	return slices.ContainsFunc(h.Variants, func(v Variant) bool { return slices.Contains(v.Programs, program) })
}

func (o *Objects) sayStandIn(hook string) {
	for _, s := range o.options.StandIns {
		if s.Hook == hook {
			o.notify(fmt.Errorf("hook %s in place of %s: %s", s.Hook, s.For, s.Means))
		}
	}
}
