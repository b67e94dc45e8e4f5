package source

import (
	"errors"
	"reflect"
	"strings"

	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/tool"
)

// Milliseconds is the option of histograms in microseconds that can be shown in milliseconds.
type Milliseconds struct {
	Milliseconds bool `flag:"milliseconds,m" help:"show milliseconds instead of microseconds"`
}

// Unit returns the selected unit.
func (m Milliseconds) Unit() histogram.Unit {
	if m.Milliseconds {
		return histogram.Milliseconds
	}
	return histogram.Microseconds
}

// Coarse are the options of times in nanoseconds that can be shown in larger units.
type Coarse struct {
	Microseconds bool `flag:"microseconds,u" help:"show microseconds instead of nanoseconds"`
	Milliseconds bool `flag:"milliseconds,m" help:"show milliseconds instead of nanoseconds"`
}

// Unit returns the selected unit, or an error if both are selected.
func (c Coarse) Unit() (histogram.Unit, error) {
	switch {
	case c.Milliseconds && c.Microseconds:
		return 0, errors.New("-m and -u cannot be combined")
	case c.Milliseconds:
		return histogram.Milliseconds, nil
	case c.Microseconds:
		return histogram.Microseconds, nil
	}
	return histogram.Nanoseconds, nil
}

// ByOwner are the options of histograms that can be grouped by cgroup or container.
type ByOwner struct {
	Cgroups    bool `flag:"cgroups" key:"cgroup" help:"one histogram per cgroup"`
	Containers bool `flag:"containers" key:"container" help:"one histogram per container, and one for all tasks outside containers"`
}

// Wanted reports whether one of them is set.
func (o ByOwner) Wanted() bool { return o.Cgroups || o.Containers }

// Owner returns the path of the cgroup and the name of its container, each only if histograms are
// grouped by it.
func (o ByOwner) Owner(id uint64, env *tool.Env) (cgroup, container string) {
	if o.Cgroups {
		cgroup = env.CgroupPath(id)
	}
	if o.Containers {
		container = env.Owner(id).Name()
	}
	return cgroup, container
}

// Keys lists the columns that histograms are grouped by, for a pointer to the options of a tool:
// the words of the tag `key` of each field that is true.
func Keys(options any) []string {
	var keys []string
	v := reflect.ValueOf(options).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if words := f.Tag.Get("key"); words != "" && v.FieldByIndex(f.Index).Bool() {
			keys = append(keys, strings.Split(words, ",")...)
		}
	}
	return keys
}

// Fine is the option of times in microseconds that can be shown in nanoseconds.
type Fine struct {
	Nanoseconds bool `flag:"nanoseconds,N" help:"show nanoseconds instead of microseconds"`
}

// Unit returns the selected unit.
func (f Fine) Unit() histogram.Unit {
	if f.Nanoseconds {
		return histogram.Nanoseconds
	}
	return histogram.Microseconds
}
