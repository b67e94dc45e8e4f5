package tool

import (
	"fmt"
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
	Output   string         `flag:"output" arg:"FORMAT" help:"text, json (an object a line) or csv"`
	Filter   string         `flag:"filter" arg:"EXPR" help:"only rows for which the expression over columns is true: 'ret < 0'"`
	NoHeader bool           `flag:"no-header" help:"leave out the line of column names"`
	Strict   bool           `flag:"strict" help:"exit with 5 when anything was lost"`
	Explain  bool           `flag:"explain" help:"say which hooks would be taken and why, and exit"`
	Stats    bool           `flag:"stats" help:"at the end, say what the tool itself has cost"`
	Verbose  bool           `flag:"verbose,v" help:"say more on standard error"`
	Hook     []string       `flag:"hook" arg:"HOOK=KIND" help:"take just this way to a hook (see --explain)"`
	BTF      string         `flag:"btf" arg:"FILE" help:"BTF of the kernel, where it has none at /sys/kernel/btf/vmlinux; also CORESCOPE_BTF"`
	AnyBTF   bool           `flag:"any-btf" help:"take the BTF of --btf although it is not that of the running kernel, which has its own; numbers may be wrong"`
	Perf     bool           `flag:"perf-buffer" help:"send events through perf buffers although there is a ring buffer"`
}

// selection is the flag of tools with rows.
type selection struct {
	Columns []string `flag:"columns" arg:"a,b,c" help:"columns to show; +a adds one to the usual ones, all is every one"`
}

// returns is the flag of tools that observe returns of user functions.
type returns struct {
	Uretprobes bool `flag:"uretprobes" help:"observe returns by uretprobes if not all return instructions of a function can be determined; then an exception, or the cancellation of a thread, that leaves the function aborts its program"`
}

// checkOutput returns an error if the source does not support the format.
func (c *common) checkOutput(src Source) error {
	known := formats(src)
	if slices.Contains(known, output.Format(c.Output)) {
		return nil
	}
	return fmt.Errorf("%w: --output %s: it is %s", flags.ErrUsage, c.Output, listed(known))
}

func (c *common) check() error {
	if c.BTF == "" {
		c.BTF = os.Getenv("CORESCOPE_BTF")
	}
	return nil
}

// kernel returns the kernel, with the types of --btf.
func (c *common) kernel() (*probe.Kernel, error) {
	kernel, err := probe.NewKernel(c.BTF)
	if err != nil || c.BTF == "" || c.AnyBTF {
		return kernel, err
	}
	if err := probe.CheckBTF(c.BTF); err != nil {
		return nil, fmt.Errorf("--btf (or CORESCOPE_BTF): %w: leave it out, or add --any-btf if it describes this kernel nevertheless", err)
	}
	return kernel, nil
}

// tasks is the task filter. It runs in the kernel (task.bpf.h), for the task that an event belongs
// to.
type tasks struct {
	PID       []uint32 `flag:"pid" arg:"PID" min:"1" id:"process" help:"only these processes (PID in the PID namespace of corescope)"`
	TID       []uint32 `flag:"tid" arg:"TID" min:"1" id:"thread" help:"only these threads (TID in the PID namespace of corescope)"`
	UID       string   `flag:"uid" arg:"USER" help:"only tasks of this user, by name or number"`
	Comm      string   `flag:"comm" arg:"NAME" help:"only tasks of this name; NAME* for those that begin so"`
	Cgroup    string   `flag:"cgroup" arg:"PATH" help:"only tasks in this cgroup or below it"`
	Container string   `flag:"container" arg:"NAME|ID" help:"only tasks in this container"`
}

// variables returns the constants of the filter. Names of cgroups are in the filter's hierarchy.
func (t *tasks) variables(env *Env, kernel *probe.Kernel, spec *ebpf.CollectionSpec) (map[string]any, error) {
	vars := map[string]any{}
	if err := t.ids(vars, probe.Capacity(spec.Variables["targ_pids"])); err != nil {
		return nil, err
	}
	if err := t.user(env, vars); err != nil {
		return nil, err
	}
	if err := t.comm(vars); err != nil {
		return nil, err
	}
	controller, err := t.cgroup(env, vars)
	if err != nil {
		return nil, err
	}
	vars["task_filter"] = len(vars) > 0
	if controller != "" {
		index, err := subsystem(kernel, controller)
		if err != nil {
			return nil, err
		}
		vars["task_cgroup_subsys"] = index
	}
	return vars, nil
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
			return fmt.Errorf("%w: --%s: %d numbers: at most %d are accepted", flags.ErrUsage, name, len(ids), most)
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

// comm is compared with its NUL, unless only its beginning is given. The kernel cuts
// names to 15 bytes, so a longer one is cut as well.
func (t *tasks) comm(vars map[string]any) error {
	if t.Comm == "" {
		return nil
	}
	name, isPrefix := strings.CutSuffix(t.Comm, "*")
	if strings.Contains(name, "*") {
		return fmt.Errorf("%w: --comm %s: it must be a name, or the beginning of one and a * at its end; --filter 'comm matches \"REGEXP\"' selects by other patterns",
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
	if t.Cgroup != "" && t.Container != "" {
		return "", fmt.Errorf("%w: --cgroup and --container do not go together", flags.ErrUsage)
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
		cgroups.Follow(targets[0])
	}
	vars["targ_cgroup_id"] = targets[0].ID
	return targets[0].Controller, nil
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

// subsystem is the kernel's number of a v1 controller: its place in
// enum cgroup_subsys_id, which depends on the configuration.
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
