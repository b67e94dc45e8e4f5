package target

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/corescope/corescope/internal/probe"
)

// Clones returns a kernel function and the copies of it that the compiler has specialized, such as
// NAME.constprop.0 and NAME.isra.0. Without any it returns a target with the name only, so that the
// failure to attach is reported.
func (f *Finder) Clones(name string) ([]probe.Target, error) {
	places, err := f.Find(Spec{Name: regexp.QuoteMeta(name) + `(\.(constprop|isra)\.[0-9]+)*$`, Regexp: true})
	if errors.Is(err, ErrNotFound) {
		return []probe.Target{{Name: name}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find function %s: %w", name, err)
	}
	var out []probe.Target
	for _, p := range places {
		out = append(out, p.Target)
	}
	return out, nil
}
