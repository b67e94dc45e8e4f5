package tool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/corescope/corescope/internal/flags"
)

// reportNoRows reports a run without output and its possible reasons, because an empty result does
// not show whether nothing happened, filters excluded everything or nothing could be observed.
func (s *Session) reportNoRows(lost uint64) {
	if s.Events > 0 {
		return
	}
	fmt.Fprintf(s.ErrOut, "%s: no output: %s\n", s.tool.Name, strings.Join(s.whyNothing(lost), "; "))
}

// whyNothing lists possible reasons for a run without rows. Whether programs ran is unknown, because
// they do not count the events that filters and conditions exclude.
func (s *Session) whyNothing(lost uint64) (out []string) {
	unattached := s.Objects.Unattached()
	hooks := slices.DeleteFunc(s.Objects.AttachedHooks(), func(hook string) bool {
		name, _, _ := strings.Cut(hook, ":")
		return unattached[name] != ""
	})
	where, span := strings.Join(hooks, ", "), time.Since(s.begun).Round(time.Millisecond)
	switch {
	case s.Excluded > 0:
		out = append(out, fmt.Sprintf("filters excluded %s", plural(s.Excluded, "row", "rows")))
	case s.lists && where == "":
		out = append(out, fmt.Sprintf("no %s found", cmp.Or(s.rowNoun, "object")))
	case s.lists:
		out = append(out, "nothing found by "+where)
	case len(hooks) > 0:
		out = append(out, fmt.Sprintf("no %s matched in %s at %s", cmp.Or(s.rowNoun, "event"), span, where))
	case s.tool.NoPrograms:
		out = append(out, fmt.Sprintf("no %s in %s", cmp.Or(s.rowNoun, "event"), span))
	}
	if lost > 0 {
		out = append(out, plural(lost, "event was", "events were")+" lost")
	}
	for _, hook := range slices.Sorted(maps.Keys(unattached)) {
		out = append(out, fmt.Sprintf("hook %s was not attached: %s", hook, unattached[hook]))
	}
	if len(unattached) > 0 {
		if closed := s.uninspected(); len(closed) > 0 {
			out = append(out, formatUninspected(closed, 0))
		}
	}
	return append(out, s.exited()...)
}

// exited lists the processes and threads of the command line that have exited.
func (s *Session) exited() (out []string) {
	for _, given := range s.ids {
		for _, id := range given.IDs {
			if given.Kind != flags.CPU && checkID(flags.Thread, id) != nil {
				out = append(out, fmt.Sprintf("%s %d has exited", given.Kind, id))
			}
		}
	}
	return out
}

// plural formats a number with the singular or plural form of a noun.
func plural(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
