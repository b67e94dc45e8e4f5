package tool

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// Env is the machine, as far as a tool asks for it. Each part is read when it is
// first asked for.
type Env struct {
	cgroups func() (*system.Cgroups, error)
	Users   *system.Users
	Disks   *system.Disks
	PIDs    []uint32      // the processes that --pid asks for
	kernel  *probe.Kernel // nil where only the tool's words are asked for
	symbols *stack.Kernel
	frames  []stack.Frame
	traces  *Traces // where events have stacks of processes
}

func newEnv() *Env {
	return &Env{
		cgroups: sync.OnceValues(func() (*system.Cgroups, error) { return system.OpenCgroups("/") }),
		Users:   system.NewUsers("/"),
		Disks:   system.NewDisks("/"),
		symbols: stack.NewKernel(),
	}
}

// Cgroups returns the machine's cgroups.
func (e *Env) Cgroups() (*system.Cgroups, error) {
	c, err := e.cgroups()
	if err != nil {
		return nil, fmt.Errorf("read cgroups: %w", err)
	}
	return c, nil
}

// rememberCgroups reads all cgroups there are, so that those that go before an event is
// read have their names.
func (e *Env) rememberCgroups() error {
	c, err := e.Cgroups()
	if err != nil {
		return err
	}
	return c.Snapshot()
}

// Owner returns what owns a cgroup, as far as it is known.
func (e *Env) Owner(cgroupID uint64) system.Owner {
	c, err := e.Cgroups()
	if err != nil {
		return system.Owner{}
	}
	return c.Owner(cgroupID)
}

// CgroupPath returns the path of a cgroup below its hierarchy's mount, or "".
func (e *Env) CgroupPath(id uint64) string {
	c, err := e.Cgroups()
	if err != nil {
		return ""
	}
	path, _ := c.Path(id)
	return path
}

// KernelEnum returns the names of an enum of the running kernel, by their values.
func (e *Env) KernelEnum(name string) (map[uint64]string, error) {
	if e.kernel == nil {
		return nil, fmt.Errorf("read enum %s: %w", name, ebpf.ErrNotSupported)
	}
	var enum *btf.Enum
	if err := e.kernel.TypeByName(name, &enum); err != nil {
		return nil, fmt.Errorf("read enum %s: %w", name, err)
	}
	names := make(map[uint64]string, len(enum.Values))
	for _, v := range enum.Values {
		names[v.Value] = v.Name
	}
	return names, nil
}

// KernelFunction returns a function of the running kernel, of its modules not.
//
// Returns btf.ErrNotFound.
func (e *Env) KernelFunction(name string) (*btf.Func, error) {
	types, err := e.kernel.Types()
	if err != nil {
		return nil, err
	}
	var f *btf.Func
	if err := types.TypeByName(name, &f); err != nil {
		return nil, fmt.Errorf("read function %s: %w", name, err)
	}
	return f, nil
}

// PerCPU returns the variables of percpu.bpf.h. The error is ErrUnsupported where
// CPUs' copies of the kernel's variables cannot be found: before 5.19, where
// /proc/kallsyms does not tell; the others are good all the same.
func (e *Env) PerCPU() (map[string]any, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	vars := map[string]any{"percpu_nr": uint32(cpus)}
	if e.kernel == nil || e.hasHelper("map_lookup_percpu_elem") {
		return vars, nil
	}
	offsets, err := system.KernelSymbol("/", "__per_cpu_offset")
	if err != nil {
		return vars, fmt.Errorf("find what is each CPU's own: %w: %w", ErrUnsupported, err)
	}
	vars["percpu_offsets"] = offsets
	return vars, nil
}

// hasHelper tells whether programs can call bpf_NAME. Without the kernel's types no
// program can be had, which loading tells.
func (e *Env) hasHelper(name string) bool {
	helpers, err := e.KernelEnum("bpf_func_id")
	if err != nil {
		return true
	}
	return slices.Contains(slices.Collect(maps.Values(helpers)), "BPF_FUNC_"+name)
}

// KernelStack names the addresses of a kernel stack as bpf_get_stack gives them, into
// what dst has room for. The BPF program and what ran it are left out. The names need
// CAP_SYSLOG (see Plan.Keep).
func (e *Env) KernelStack(dst value.Stack, addrs []uint64) value.Stack {
	e.frames = e.symbols.Append(e.frames[:0], addrs)
	dst = dst[:0]
	for _, f := range e.frames[programFrames(e.frames):] {
		dst = append(dst, value.Frame{Symbol: f.Name, Module: f.Module, Offset: f.Offset, Address: value.Address(f.Addr)})
	}
	return dst
}

// UserStack names the frames of a process's stack, as user_stack_read has written it, into
// what dst has room for; there are none if it is empty. It is there for [Events] that have
// UserStacks, and takes rights to look into other processes (see Plan.Keep, UserStackNeeds);
// one that has ended is named as far as it was heard of before.
func (e *Env) UserStack(dst value.Stack, sample []byte) value.Stack {
	if e.traces == nil {
		return dst[:0]
	}
	return e.traces.Append(dst[:0], sample)
}

// UserStackNeeds are the capabilities that UserStack uses.
func UserStackNeeds() []system.Capability {
	return slices.Collect(fileCapabilities().All())
}

// programFrames is how many of the frames are those of the program and of what ran it.
func programFrames(frames []stack.Frame) int {
	const most = 16
	n := 0
	for i, f := range frames[:min(most, len(frames))] {
		if f.Module == "[bpf]" || runsPrograms(f.Name) {
			n = i + 1
		}
	}
	return n
}

func runsPrograms(function string) bool {
	for _, prefix := range []string{"bpf_prog_", "bpf_trampoline_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_get_stack"} {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return false
}
