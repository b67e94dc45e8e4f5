package tool

import (
	"fmt"
	"slices"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// columns are all that a row has, those that are shown, and the filter over them.
type columns struct {
	all, shown []column.Column
	filter     *column.Filter
	sorted     *column.Column // that rows are sorted by, or nil
	// machine, if set, are the keys of the columns that JSON and CSV show.
	machine []string
}

// choose picks the shown columns: those that the user names, else the tool's own in
// text and all that are not extra in JSON and CSV.
func (c *columns) choose(o *common, words, text []string) error {
	defaults := text
	if o.Output != "text" {
		defaults = c.machine
		if defaults == nil {
			defaults = column.Standard(c.all)
		}
	}
	shown, err := column.Select(c.all, defaults, words)
	if err != nil {
		return err
	}
	c.shown = shown
	if o.Filter == "" {
		return nil
	}
	c.filter, err = column.NewFilter(o.Filter, c.all)
	return err
}

// used are the columns that are shown, filtered by or sorted by.
func (c *columns) used() []column.Column {
	used := slices.Clone(c.shown)
	if c.filter != nil {
		used = append(used, c.filter.Needs()...)
	}
	if c.sorted != nil {
		used = append(used, *c.sorted)
	}
	return used
}

// needs are the variables of the programs that must be set for what is shown.
func (c *columns) needs() map[string]any {
	vars := map[string]any{}
	for _, col := range c.used() {
		if col.Need != "" {
			vars[col.Need] = true
		}
	}
	return vars
}

// usesCgroups tells whether a column that is shown or filtered by is looked up by a
// cgroup's id: one of the owner's, or a key of a histogram that is called as one of them.
func (c *columns) usesCgroups() bool {
	owner := column.Keys(ownerColumns(nil, nil))
	return slices.ContainsFunc(c.used(), func(col column.Column) bool { return !col.Off && slices.Contains(owner, col.Key) })
}

// settle marks the columns that this kernel lacks the hooks for. Nothing can be said of
// rows by what they lack.
func (c *columns) settle(o *probe.Objects) error {
	lacks := func(hook string) bool { return !o.Has(hook) }
	for _, cols := range [][]column.Column{c.all, c.shown} {
		for i := range cols {
			cols[i].Lacking = slices.ContainsFunc(cols[i].Hooks, lacks)
		}
	}
	if c.filter == nil {
		return nil
	}
	for _, col := range c.filter.Needs() {
		if slices.ContainsFunc(col.Hooks, lacks) {
			return fmt.Errorf("filter by %s: %w", col.Key, probe.ErrUnsupported)
		}
	}
	return nil
}

// derived is a column that is looked up, by what the row has in *id.
type derived[T any] struct {
	id     *T
	lookup func(T) string
}

func (d derived[T]) AppendText(b []byte) []byte { return value.AppendEscaped(b, d.lookup(*d.id)) }
func (d derived[T]) AppendJSON(b []byte) []byte { return value.AppendString(b, d.lookup(*d.id)) }
func (d derived[T]) Any() any                   { return d.lookup(*d.id) }
func (d derived[T]) Schema() value.Schema       { return value.Schema{Type: "string"} }
func (d derived[T]) Absent() bool               { return d.lookup(*d.id) == "" }

// taskColumns are the columns that every row of a task has on demand: who owns its
// cgroup, also when the task is gone, and its user's name.
func taskColumns(t *value.Task, env *Env) []column.Column {
	cols := ownerColumns(&t.CgroupID, env)
	return append(cols, column.Column{
		Key: "user", Header: "USER", Width: 10, Extra: true,
		Help: "name of the user id in /etc/passwd",
		Value: derived[uint32]{&t.UID, func(uid uint32) string {
			name, _ := env.Users.Name(uid)
			return name
		}},
	})
}

func ownerColumns(id *uint64, env *Env) []column.Column {
	var cols []column.Column
	for _, c := range []struct {
		key, header, help string
		width             int
		of                func(system.Owner) string
	}{
		{"container", "CONTAINER", "name of the container, or its short id where the runtime's files do not tell", 20,
			system.Owner.Name},
		{"container_id", "CONTAINER_ID", "id of the container", 12, func(o system.Owner) string { return o.ContainerID }},
		{"pod", "POD", "name of the Kubernetes pod", 24, func(o system.Owner) string { return o.Pod }},
		{"namespace", "NAMESPACE", "Kubernetes namespace of the pod", 16, func(o system.Owner) string { return o.Namespace }},
		{"unit", "UNIT", "systemd unit", 24, func(o system.Owner) string { return o.Unit }},
	} {
		cols = append(cols, column.Column{
			Key: c.key, Header: c.header, Width: c.width, Extra: true,
			Help: c.help + " (from the path of the cgroup that the task was in at the event)",
			Value: derived[uint64]{id, func(id uint64) string {
				return c.of(env.Owner(id))
			}},
		})
	}
	return append(cols, column.Column{
		Key: "cgroup", Header: "CGROUP", Width: 30, Extra: true,
		Help:  "path of the cgroup that the task was in at the event",
		Value: derived[uint64]{id, env.CgroupPath},
	})
}

// description is what a source shows.
type description struct {
	columns *columns
	// keys are the columns that tell histograms apart, labels all that could.
	keys, labels []column.Column
	// text has the keys of the columns that text shows.
	text []string
	// blocks tells that text has a line of column names above each interval's rows, and
	// screen that they can be a screen.
	blocks, screen bool
}
