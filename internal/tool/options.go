package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/output"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// common are the flags of all tools.
type common struct {
	Duration flags.Duration `flag:"duration" arg:"TIME" help:"stop after this time: 2s, 1m, or a number of seconds"`
	Limit    uint64         `flag:"limit" min:"1" help:"stop after N rows or reports"`
	Output   string         `flag:"output" arg:"FORMAT" help:"text, json (one object per line) or csv"`
	Filter   string         `flag:"filter" arg:"EXPR" help:"only rows that match this expression over columns: 'ret < 0'; COLUMN == nil matches rows without a value in it"`
	NoHeader bool           `flag:"no-header" help:"do not print column names"`
	Strict   bool           `flag:"strict" help:"exit with code 5 if events were lost"`
	Explain  bool           `flag:"explain" help:"print the attach type that each hook would use and why, and exit"`
	Stats    bool           `flag:"stats" help:"at the end, print the CPU time used by the BPF programs and by this process"`
	Verbose  bool           `flag:"verbose,v" help:"print more details to standard error"`
	Hook     []string       `flag:"hook" arg:"HOOK=KIND" help:"force one attach type for a hook (see --explain)"`
	BTF      string         `flag:"btf" arg:"FILE" help:"file with the kernel's BTF, if /sys/kernel/btf/vmlinux does not exist; also CORESCOPE_BTF"`
	AnyBTF   bool           `flag:"any-btf" help:"use the BTF of --btf even if it differs from that of the running kernel; values may be wrong"`
	Perf     bool           `flag:"perf-buffer" help:"send events through perf buffers even if the kernel supports the ring buffer"`
	Usage    bool           `flag:"usage" help:"print the names of all flags, and exit"`
	Version  bool           `flag:"version,V" help:"print the version, and exit"`
}

// selection is the flag of tools with rows.
type selection struct {
	Columns []string `flag:"columns" arg:"a,b,c" help:"columns to show; +a adds a column to the default ones, all shows every column"`
}

// returns is the flag of tools that observe returns of user functions.
type returns struct {
	Uretprobes bool `flag:"uretprobes" help:"use a uretprobe for a function if not all of its return instructions can be determined; an exception or thread cancellation that leaves the function then aborts the program"`
}

// checkOutput returns an error if the source does not support the format.
func (c *common) checkOutput(src Source) error {
	supported := formats(src)
	if slices.Contains(supported, output.Format(c.Output)) {
		return nil
	}
	return fmt.Errorf("%w: --output %s: it must be %s", flags.ErrUsage, c.Output, listed(supported))
}

func (c *common) check() error {
	if c.BTF == "" {
		c.BTF = os.Getenv("CORESCOPE_BTF")
	}
	if c.AnyBTF && c.BTF == "" {
		return fmt.Errorf("%w: --any-btf needs --btf (or CORESCOPE_BTF)", flags.ErrUsage)
	}
	return nil
}

// kernel returns the running kernel. Its types come from --btf if that is set.
func (c *common) kernel() (*probe.Kernel, error) {
	kernel, err := probe.NewKernel(c.BTF)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: --btf (or CORESCOPE_BTF): %w", flags.ErrUsage, err)
	case c.BTF == "", c.AnyBTF:
		return kernel, nil
	}
	if err := probe.CheckBTF(c.BTF); err != nil {
		return nil, fmt.Errorf("--btf (or CORESCOPE_BTF): %w: omit it, or add --any-btf if the file does describe this kernel", err)
	}
	return kernel, nil
}

// tasks is the task filter. It runs in the kernel (task.bpf.h), for the task that an event belongs
// to.
type tasks struct {
	PID       []uint32 `flag:"pid" arg:"PID" min:"1" id:"process" help:"only these processes (PID in the PID namespace of corescope)"`
	TID       []uint32 `flag:"tid" arg:"TID" min:"1" id:"thread" help:"only these threads (TID in the PID namespace of corescope)"`
	UID       string   `flag:"uid" arg:"USER" help:"only tasks of this user, by name or number"`
	Comm      string   `flag:"comm" arg:"NAME" help:"only tasks with this name; NAME* matches a prefix"`
	Cgroup    string   `flag:"cgroup" arg:"PATH" help:"only tasks in this cgroup or its descendants"`
	Container string   `flag:"container" arg:"NAME|ID" help:"only tasks in this container"`
	CgroupMap string   `flag:"cgroupmap" arg:"PATH" help:"only tasks in the cgroups (v2, without descendants) whose IDs are keys of the hash map pinned at PATH"`
	MntNSMap  string   `flag:"mntnsmap" arg:"PATH" help:"only tasks in the mount namespaces whose inode numbers are keys of the hash map pinned at PATH"`
}

// variables returns the values of the filter's constants in BPF programs. If the selected cgroup is in a v1
// hierarchy, programs look up cgroups of all tasks in that hierarchy: lookups return which one it is.
func (t *tasks) variables(env *Env, spec *ebpf.CollectionSpec) (vars map[string]any, lookups probe.Lookups, err error) {
	vars = map[string]any{}
	if err := t.ids(vars, probe.Capacity(spec.Variables["targ_pids"])); err != nil {
		return nil, nil, err
	}
	if err := t.user(env, vars); err != nil {
		return nil, nil, err
	}
	if err := t.comm(vars); err != nil {
		return nil, nil, err
	}
	controller, err := t.cgroup(env, vars)
	if err != nil {
		return nil, nil, err
	}
	for name, path := range t.maps() {
		if path != "" {
			vars["targ_by_"+strings.TrimPrefix(name, "targ_")] = true
		}
	}
	vars["task_filter"] = len(vars) > 0
	if controller != "" {
		lookups = probe.Lookups{"task_cgroup_subsys": func(k *probe.Kernel) (any, error) { return subsystem(k, controller) }}
	}
	return vars, lookups, nil
}

// process returns the PID of --pid if there is exactly one, else 0.
func (t *tasks) process() uint32 {
	if len(t.PID) != 1 {
		return 0
	}
	return t.PID[0]
}

// ids sets the IDs of the filter. Programs compare them in the PID namespace of corescope
// (local_pidns), at most most of each kind.
func (t *tasks) ids(vars map[string]any, most int) error {
	for name, ids := range map[string][]uint32{"pid": t.PID, "tid": t.TID} {
		if len(ids) == 0 {
			continue
		}
		if len(ids) > most {
			return fmt.Errorf("%w: --%s: %d IDs: at most %d are supported", flags.ErrUsage, name, len(ids), most)
		}
		vars["targ_"+name+"s"] = ids
		vars["targ_nr_"+name+"s"] = uint32(len(ids))
	}
	return nil
}

func (t *tasks) user(env *Env, vars map[string]any) error {
	if t.UID == "" {
		return nil
	}
	uid, err := env.Users.UID(t.UID)
	if err != nil {
		return fmt.Errorf("%w: --uid: %w", flags.ErrUsage, err)
	}
	vars["targ_by_uid"] = true
	vars["targ_uid"] = uid
	return nil
}

// comm sets the name to compare with. It includes the NUL byte unless it is a prefix. The kernel
// truncates names to 15 bytes, so a longer one is truncated too.
func (t *tasks) comm(vars map[string]any) error {
	if t.Comm == "" {
		return nil
	}
	name, isPrefix := strings.CutSuffix(t.Comm, "*")
	if strings.Contains(name, "*") {
		return fmt.Errorf("%w: --comm %s: only a * at the end is supported: use --filter 'comm matches \"REGEXP\"' for other patterns",
			flags.ErrUsage, t.Comm)
	}
	name = name[:min(len(name), len(value.Comm{})-1)]
	if !isPrefix {
		name += "\x00"
	}
	vars["targ_comm"] = name
	return nil
}

func (t *tasks) cgroup(env *Env, vars map[string]any) (controller string, err error) {
	if err := t.checkCgroup(); err != nil {
		return "", err
	}
	cgroups, err := env.Cgroups()
	if err != nil && t.Cgroup == "" && t.Container == "" {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	targets, err := t.targets(env)
	if err != nil {
		return "", err
	}
	if len(targets) == 0 {
		return cgroups.Default(), nil
	}
	if t.Cgroup != "" {
		if err := env.followCgroup(targets[0]); err != nil {
			return "", err
		}
	}
	vars["targ_cgroup_id"] = targets[0].ID
	return targets[0].Controller, nil
}

// CgroupTargets returns the cgroups that the flags --cgroup and --container of a tool without the
// task filter select, none if both are empty.
func (e *Env) CgroupTargets(cgroup, container string) ([]system.Target, error) {
	t := tasks{Cgroup: cgroup, Container: container}
	if err := t.checkCgroup(); err != nil {
		return nil, err
	}
	return t.targets(e)
}

func (t *tasks) checkCgroup() error {
	if t.Cgroup != "" && t.Container != "" {
		return fmt.Errorf("%w: --cgroup and --container cannot be combined", flags.ErrUsage)
	}
	return nil
}

// targets returns the selected cgroups, none if all are selected.
func (t *tasks) targets(env *Env) ([]system.Target, error) {
	if t.Cgroup == "" && t.Container == "" {
		return nil, nil
	}
	cgroups, err := env.Cgroups()
	if err != nil {
		return nil, err
	}
	if t.Cgroup != "" {
		target, err := cgroups.Lookup(t.Cgroup)
		if err != nil {
			return nil, fmt.Errorf("%w: --cgroup: %w", flags.ErrUsage, err)
		}
		return []system.Target{target}, nil
	}
	targets, err := cgroups.FindContainer(t.Container)
	if err != nil {
		return nil, fmt.Errorf("%w: --container: %w", flags.ErrUsage, err)
	}
	return targets, nil
}

// subsystem returns the number of a v1 controller in enum cgroup_subsys_id, which depends on the
// configuration of the kernel.
func subsystem(kernel *probe.Kernel, controller string) (int32, error) {
	var enum *btf.Enum
	if err := kernel.TypeByName("cgroup_subsys_id", &enum); err != nil {
		return 0, fmt.Errorf("find cgroup controllers: %w", err)
	}
	for _, v := range enum.Values {
		if v.Name == controller+"_cgrp_id" && v.Value <= math.MaxInt32 {
			return int32(v.Value), nil
		}
	}
	return 0, fmt.Errorf("cgroup controller %s: %w", strconv.Quote(controller), ebpf.ErrNotSupported)
}
