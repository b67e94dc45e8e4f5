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
)

// common are the flags that every tool has.
type common struct {
	Duration flags.Duration `flag:"duration" arg:"TIME" help:"stop after this time: 2s, 1m, or a number of seconds"`
	Limit    uint64         `flag:"limit" help:"stop after N rows or reports"`
	Output   string         `flag:"output" arg:"FORMAT" help:"text, json (an object a line) or csv"`
	Filter   string         `flag:"filter" arg:"EXPR" help:"only rows for which the expression over columns is true: 'ret < 0'"`
	NoHeader bool           `flag:"no-header" help:"leave out the line of column names"`
	Strict   bool           `flag:"strict" help:"exit with 5 when anything was lost"`
	Explain  bool           `flag:"explain" help:"say which hooks would be taken and why, and exit"`
	Stats    bool           `flag:"stats" help:"at the end, say what the tool itself has cost"`
	Verbose  bool           `flag:"verbose,v" help:"say more on standard error"`
	Hook     []string       `flag:"hook" arg:"HOOK=KIND" help:"take just this way to a hook (see --explain)"`
	BTF      string         `flag:"btf" arg:"FILE" help:"BTF of the kernel, where it has none at /sys/kernel/btf/vmlinux; also CORESCOPE_BTF"`
	Perf     bool           `flag:"perf-buffer" help:"send events through perf buffers although there is a ring buffer"`
}

// selection is the flag of tools that have rows.
type selection struct {
	Columns []string `flag:"columns" arg:"a,b,c" help:"columns to show; +a adds one to the usual ones, all is every one"`
}

// checkOutput sees that the source has the form that is asked for.
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

// tasks are the flags of tools whose events belong to tasks. The filter runs in
// the kernel (task.bpf.h), for the task that the event belongs to.
type tasks struct {
	PID       []uint32 `flag:"pid" arg:"PID" help:"only these processes"`
	TID       []uint32 `flag:"tid" arg:"TID" help:"only these threads"`
	UID       string   `flag:"uid" arg:"USER" help:"only tasks of this user, by name or number"`
	Comm      string   `flag:"comm" arg:"NAME" help:"only tasks of this name; NAME* for those that begin so"`
	Cgroup    string   `flag:"cgroup" arg:"PATH" help:"only tasks in this cgroup or below it"`
	Container string   `flag:"container" arg:"NAME|ID" help:"only tasks in this container"`
}

// TASK_TARGETS_MAX and TASK_COMM_LEN of task.bpf.h.
const (
	taskTargets = 16
	commLen     = 16
)

// variables returns the filter's constants. Labels of cgroups come from the same
// hierarchy as the filter's.
func (t *tasks) variables(env *Env, kernel *probe.Kernel) (map[string]any, error) {
	vars := map[string]any{}
	if err := t.ids(vars); err != nil {
		return nil, err
	}
	if err := t.user(env, vars); err != nil {
		return nil, err
	}
	t.comm(vars)
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

// process is the only process that is asked for, if the kernel knows it by the same
// number for this process as in the initial PID namespace; else 0.
func (t *tasks) process() uint32 {
	if len(t.PID) != 1 || !system.InitialPIDNamespace("/") {
		return 0
	}
	return t.PID[0]
}

func (t *tasks) ids(vars map[string]any) error {
	for name, ids := range map[string][]uint32{"pids": t.PID, "tids": t.TID} {
		if len(ids) == 0 {
			continue
		}
		if len(ids) > taskTargets {
			return fmt.Errorf("%w: %d ids: %d at most", flags.ErrUsage, len(ids), taskTargets)
		}
		var all [taskTargets]uint32
		copy(all[:], ids)
		vars["targ_"+name] = all
		vars["targ_nr_"+name] = uint32(len(ids))
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
func (t *tasks) comm(vars map[string]any) {
	if t.Comm == "" {
		return
	}
	name, isPrefix := strings.CutSuffix(t.Comm, "*")
	name = name[:min(len(name), commLen-1)]
	if !isPrefix {
		name += "\x00"
	}
	vars["targ_comm"] = name
}

func (t *tasks) cgroup(env *Env, vars map[string]any) (controller string, err error) {
	if t.Cgroup != "" && t.Container != "" {
		return "", fmt.Errorf("%w: --cgroup and --container do not go together", flags.ErrUsage)
	}
	cgroups, err := env.Cgroups()
	switch {
	case err != nil && t.Cgroup == "" && t.Container == "":
		return "", nil
	case err != nil:
		return "", err
	case t.Cgroup != "":
		target, err := cgroups.Lookup(t.Cgroup)
		if err != nil {
			return "", fmt.Errorf("%w: --cgroup: %w", flags.ErrUsage, err)
		}
		cgroups.Follow(target)
		vars["targ_cgroup_id"] = target.ID
		return target.Controller, nil
	case t.Container != "":
		target, err := cgroups.FindContainer(t.Container)
		if err != nil {
			return "", fmt.Errorf("%w: --container: %w", flags.ErrUsage, err)
		}
		vars["targ_cgroup_id"] = target[0].ID
		return target[0].Controller, nil
	}
	return cgroups.Default(), nil
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
