package tool

import (
	"reflect"
	"strings"

	"github.com/corescope/corescope/internal/histogram"
)

// Milliseconds is the option of histograms that are of microseconds without it.
type Milliseconds struct {
	Milliseconds bool `flag:"milliseconds,m" help:"show milliseconds, not microseconds"`
}

// Unit is what is shown.
func (m Milliseconds) Unit() histogram.Unit {
	if m.Milliseconds {
		return histogram.Milliseconds
	}
	return histogram.Microseconds
}

// ByOwner are the options of tools that have histograms for each cgroup or container.
type ByOwner struct {
	Cgroups    bool `flag:"cgroups" key:"cgroup" help:"a histogram for each cgroup"`
	Containers bool `flag:"containers" key:"container" help:"a histogram for each container, and one for what is in none"`
}

// Wanted tells whether either is asked for.
func (o ByOwner) Wanted() bool { return o.Cgroups || o.Containers }

// Owner returns what of a cgroup tells histograms apart: its path, the name of its
// container.
func (o ByOwner) Owner(id uint64, env *Env) (cgroup, container string) {
	if o.Cgroups {
		cgroup = env.CgroupPath(id)
	}
	if o.Containers {
		container = env.Owner(id).Name()
	}
	return cgroup, container
}

// Keys lists the columns that tell histograms apart for a pointer to a tool's options: the
// words of the tag `key` of each field that is true.
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
