package tool

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
)

// open loads the object without attaching its programs.
func (t *Tool) open(l *line, src Source, env *Env, notify func(error)) (*Session, error) {
	if l.rest != nil && (l.common.Explain || len(l.common.Hook) > 0) {
		l.object, l.rest = l.rest, nil // other variants are needed for certain
	}
	// The object is being decoded meanwhile, which takes longer.
	plan := src.Base()
	_, _ = env.PIDNamespace() // kept, with its error
	if plan.Prefetch != nil {
		plan.Prefetch()
	}
	spec, err := l.object()
	if err != nil {
		return nil, fmt.Errorf("read BPF object: %w", err)
	}
	d, err := src.Describe(env, spec)
	if err != nil {
		return nil, err
	}
	l.selectColumns(d.Columns.All)
	if err := d.Columns.choose(&l.common, l.selection.Columns, d.Text); err != nil {
		return nil, flags.Usage(err)
	}
	objects, err := l.load(env, spec, plan, d.Columns.needs(), notify)
	if err != nil {
		return nil, err
	}
	keep := t.keep(plan)
	if d.Columns.usesCgroups() {
		keep |= system.Set(system.CapDACReadSearch)
		if err := env.rememberCgroups(); err != nil {
			return nil, errors.Join(err, objects.Close())
		}
	}
	if keep.Has(system.CapSyslog) {
		env.symbols.Ask(objects.KernelSymbols())
	}
	s := &Session{
		tool: t, common: l.common, Env: env, Objects: objects, keep: keep, standIns: plan.StandIns, rowNoun: plan.RowNoun, hints: plan.Hints, PID: l.tasks.process(), ids: l.set.IDs(),
		losses: losses{counts: objects.Counts("lost")},
	}
	if src.Kind() != output.KindHistogram {
		s.columns, s.blocks = d.Columns.Shown, d.Blocks
	}
	return s, nil
}

func (l *line) load(env *Env, spec *ebpf.CollectionSpec, plan *Plan, needs map[string]any, notify func(error)) (*probe.Objects, error) {
	kernel := env.kernel
	if err := plan.complete(needs); err != nil {
		return nil, err
	}
	if plan.Resolve != nil {
		if err := plan.Resolve(plan, kernel); err != nil {
			return nil, err
		}
	}
	for _, note := range plan.notes {
		notify(note)
	}
	if l.tool.NoPrograms {
		return probe.Nothing(), nil
	}
	var early *probe.Early
	if !l.common.Perf && !plan.PerfBuffer && hasManyDescriptors() {
		early = probe.CreateEarly(spec, plan.MapEntries["events"])
		defer early.Close()
	}
	vars := l.set.Variables()
	maps.Copy(vars, plan.Variables)
	maps.Copy(vars, needs)
	if plan.Draws && l.stream != nil {
		vars["want_draw"] = true
	}
	plan.Cut = append(plan.Cut, l.tasks.unused()...)
	plan.reduce(spec, vars)
	if ns, _ := env.PIDNamespace(); !ns.Initial && spec.Variables["local_pidns"] != nil {
		vars["local_pidns"] = ns.Inode
	}
	var lookups probe.Lookups
	if l.tool.Tasks {
		filter, subsystem, err := l.tasks.variables(env, spec)
		if err != nil {
			return nil, err
		}
		maps.Copy(vars, filter)
		lookups = subsystem
	}
	if err := l.followCommand(spec, plan, vars); err != nil {
		return nil, err
	}
	if err := l.checkLengths(spec, vars); err != nil {
		return nil, err
	}
	if err := env.checkSelf(); err != nil {
		return nil, fmt.Errorf("load object: %w", err)
	}
	if len(plan.Files) > 0 {
		if err := env.checkProc(); err != nil {
			return nil, fmt.Errorf("find programs and libraries of processes: %w", err)
		}
	}
	files, err := l.files(plan)
	if err != nil {
		return nil, err
	}
	pinned, err := l.tasks.pinned()
	if err != nil {
		return nil, err
	}
	objects, err := probe.Load(spec, probe.Options{
		Rest: l.restOf(plan, vars), Variables: vars, Lookups: lookups, Maps: pinned, MapEntries: plan.MapEntries, PerfBuffer: l.common.Perf || plan.PerfBuffer,
		Without: l.without(plan, vars), Optional: plan.Optional, StandIns: plan.StandIns, Force: slices.Concat(l.common.Hook, plan.Hook), Kernel: kernel,
		Files: files, Instances: plan.Instances, Sampling: plan.Sampling, Begin: plan.Begin, Settle: plan.Settle, Notify: notify, Uretprobes: l.returns.Uretprobes, Panicked: l.stream.panicked(), Early: early,
	})
	if err != nil {
		return nil, errors.Join(err, closeMaps(pinned))
	}
	if l.command != nil {
		l.command.objects = objects
	}
	return objects, nil
}

// restOf returns a function that decodes the whole object, reduced as for the run; nil if the object is whole.
func (l *line) restOf(plan *Plan, vars map[string]any) func() (*ebpf.CollectionSpec, error) {
	if l.rest == nil {
		return nil
	}
	return func() (*ebpf.CollectionSpec, error) {
		spec, err := l.rest()
		if err == nil {
			plan.reduce(spec, vars)
		}
		return spec, err
	}
}

// files returns the files of the plan, limited to the processes of the command line.
func (l *line) files(plan *Plan) (map[string]binary.Files, error) {
	files := maps.Clone(plan.Files)
	for name, f := range files {
		f.PIDs = l.tasks.PID
		if l.command != nil {
			// Probes for a single process would miss its children.
			f.PIDs, f.Has, f.Alone = []uint32{l.command.pid()}, l.command.has, false
		}
		for _, path := range slices.Concat(f.Paths, f.Extra) {
			opened, err := f.OpenPath(path)
			if err != nil {
				return nil, flags.Usage(err)
			}
			for _, file := range opened {
				file.Close()
			}
		}
		files[name] = f
	}
	return files, nil
}

// without lists the hooks that this command line does not need. vars are the variables of the run, nil
// for those of the plan.
func (l *line) without(plan *Plan, vars map[string]any) []string {
	return append(plan.without(vars), l.withoutFilter(plan)...)
}

// withoutAny lists the hooks that this command line does not need, whatever its variables are.
func (l *line) withoutAny(plan *Plan) []string {
	return slices.Concat(plan.Without, l.withoutFilter(plan))
}

// withoutFilter lists the hooks that a command line without a command, or without a task filter, does not need.
func (l *line) withoutFilter(plan *Plan) []string {
	switch {
	case plan.Exec != "":
		return nil
	case reflect.ValueOf(l.tasks).IsZero():
		return append([]string{commandHook}, plan.ForFilter...)
	}
	return []string{commandHook}
}

// checkLengths returns a usage error for strings and lists that are longer than the variables of the
// programs.
func (l *line) checkLengths(spec *ebpf.CollectionSpec, vars map[string]any) error {
	for name, val := range vars {
		v := spec.Variables[name]
		if v == nil {
			continue
		}
		switch val := val.(type) {
		case string:
			if len(val) > int(v.Size()) {
				return fmt.Errorf("%w: --%s: %d bytes are too long, the maximum is %d",
					flags.ErrUsage, l.set.FlagOf(name), len(val), v.Size())
			}
		case []string:
			if most := probe.Capacity(v); len(val) > most {
				return fmt.Errorf("%w: --%s: %d values are too many, the maximum is %d",
					flags.ErrUsage, l.set.FlagOf(name), len(val), most)
			}
		}
	}
	return nil
}
