package tool

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/corescope/corescope/internal/column"
	"github.com/corescope/corescope/internal/histogram"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// Columns are all columns of a row, the shown ones, and the filter.
type Columns struct {
	All, Shown []column.Column
	filter     *column.Filter
	Sorted     *column.Column // the sort column, or nil
	// Machine, if set, lists the keys of the columns in JSON and CSV.
	Machine []string
}

// choose selects the shown columns: those of --columns, else the tool's default in text, and all
// except extra ones in JSON and CSV.
func (c *Columns) choose(o *common, words, text []string) error {
	defaults := text
	if o.Output != "text" {
		defaults = c.Machine
		if defaults == nil {
			defaults = column.Standard(c.All)
		}
	}
	shown, err := column.Select(c.All, defaults, words)
	if err != nil {
		return fmt.Errorf("--columns: %w", err)
	}
	c.Shown = shown
	if o.Filter == "" {
		return nil
	}
	if c.filter, err = column.NewFilter(o.Filter, c.All); err != nil {
		return fmt.Errorf("--filter: %w", err)
	}
	return nil
}

// used returns the columns that are shown, filtered by or sorted by.
func (c *Columns) used() []column.Column {
	used := slices.Clone(c.Shown)
	if c.filter != nil {
		used = append(used, c.filter.Needs()...)
	}
	if c.Sorted != nil {
		used = append(used, *c.Sorted)
	}
	return used
}

// needs returns the variables that programs need for the used columns.
func (c *Columns) needs() map[string]any {
	vars := map[string]any{}
	for _, col := range c.used() {
		if col.Need != "" {
			vars[col.Need] = true
		}
	}
	return vars
}

// usesCgroups reports whether a used column is looked up by cgroup ID: a column of the owner, a key
// of a histogram with the same name, or such a column of another task, as trigger_container.
func (c *Columns) usesCgroups() bool {
	owner := column.Keys(OwnerColumns(nil, nil))
	isOwner := func(key string) bool {
		return slices.ContainsFunc(owner, func(o string) bool { return key == o || strings.HasSuffix(key, "_"+o) })
	}
	return slices.ContainsFunc(c.used(), func(col column.Column) bool { return !col.Off && isOwner(col.Key) })
}

// Settle marks the columns whose hooks are not attached. It returns an error if the filter uses
// one of them.
func (c *Columns) Settle(o *probe.Objects) error {
	lacks := func(hook string) bool { return !o.Has(hook) }
	for _, cols := range [][]column.Column{c.All, c.Shown} {
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

// derived is a column that is looked up by an ID of the row.
type derived[T any] struct {
	id     *T
	lookup func(T) string
}

func (d derived[T]) AppendText(b []byte) []byte { return value.AppendEscaped(b, d.lookup(*d.id)) }
func (d derived[T]) AppendJSON(b []byte) []byte { return value.AppendString(b, d.lookup(*d.id)) }
func (d derived[T]) Any() any                   { return d.lookup(*d.id) }
func (d derived[T]) Schema() value.Schema       { return value.Schema{Type: "string"} }
func (d derived[T]) Absent() bool               { return d.lookup(*d.id) == "" }
func (d derived[T]) Valid() bool                { return utf8.ValidString(d.lookup(*d.id)) }

func (d derived[T]) AppendBase64(b []byte) []byte {
	return value.AppendBase64(b, []byte(d.lookup(*d.id)))
}

// TaskColumns returns the columns that all rows of tasks have: the cgroup and container, also after
// the task has exited, and the name of the user.
func TaskColumns(t *value.Task, env *Env) []column.Column {
	cols := OwnerColumns(&t.CgroupID, env)
	return append(cols, column.Column{
		Key: "user", Header: "USER", Width: 10, Extra: true,
		Help: "name of the user ID in /etc/passwd",
		Value: derived[uint32]{&t.UID, func(uid uint32) string {
			name, _ := env.Users.Name(uid)
			return name
		}},
	})
}

// OwnerColumns returns the columns that are derived from a cgroup ID: container, pod, unit and the
// path of the cgroup.
func OwnerColumns(id *uint64, env *Env) []column.Column {
	var cols []column.Column
	for _, c := range []struct {
		key, header, help string
		width             int
		member            func(system.Owner) string
	}{
		{"container", "CONTAINER", "name of the container, or its short ID if the files of the container runtime do not contain the name", 20,
			system.Owner.Name},
		{"container_id", "CONTAINER_ID", "ID of the container", 12, func(o system.Owner) string { return o.ContainerID }},
		{"pod", "POD", "name of the Kubernetes pod", 24, func(o system.Owner) string { return o.Pod }},
		{"namespace", "NAMESPACE", "Kubernetes namespace of the pod", 16, func(o system.Owner) string { return o.Namespace }},
		{"unit", "UNIT", "systemd unit", 24, func(o system.Owner) string { return o.Unit }},
	} {
		cols = append(cols, column.Column{
			Key: c.key, Header: c.header, Width: c.width, Extra: true,
			Help: c.help + " (from the path of the task's cgroup at the time of the event)",
			Value: derived[uint64]{id, func(id uint64) string {
				return c.member(env.Owner(id))
			}},
		})
	}
	return append(cols, column.Column{
		Key: "cgroup", Header: "CGROUP", Width: 30, Extra: true,
		Help:  "path of the task's cgroup at the time of the event",
		Value: derived[uint64]{id, env.CgroupPath},
	})
}

// Description describes the output of a source.
type Description struct {
	Columns *Columns
	// Keys are the columns that histograms are grouped by in this run, Labels all columns that they
	// can be grouped by.
	Keys, Labels []column.Column
	// Text lists the keys of the columns in text output.
	Text []string
	// Blocks is set if text output repeats the column names above the rows of each interval.
	// Screen is set if text on a terminal is redrawn in place.
	Blocks, Screen bool
	// Unit is the unit of histograms.
	Unit histogram.Unit
	// Percentiles is set if histograms have percentiles that the user selects.
	Percentiles bool
	// Title, if set, is shown in text instead of column names: the title of histograms.
	Title string
}
