package tool

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/limit"
	"github.com/corescope/corescope/internal/probe"
	"github.com/corescope/corescope/internal/stack"
	"github.com/corescope/corescope/internal/stacktrace"
	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/value"
)

// Env provides facts about the machine to tools. Each is read when it is first used.
type Env struct {
	cgroups  func() (*system.Cgroups, error)
	isShared bool // cgroups belong to a Common
	// PIDNamespace returns the PID namespace of corescope.
	PIDNamespace func() (system.PIDNamespace, error)
	Users        *system.Users
	Disks        *system.Disks
	PIDs         []uint32      // --pid, in the PID namespace of corescope
	HasFilter    bool          // --filter is used, so that not all rows that programs send are shown
	IsExported   bool          // the output is exported: histograms have exponential slots, and exemplars
	tasks        *tasks        // the task filter; nil if only documentation is generated
	kernel       *probe.Kernel // nil if only documentation is generated
	symbols      *stack.Kernel
	frames       []stack.Frame
	Traces       *stacktrace.Traces // nil if events have no user stacks
	limits       *limit.Reporter
	warn         func(error) // writes a notice, nil before the run
}

// Limits reports input from other processes that exceeds a limit.
func (e *Env) Limits() *limit.Reporter { return e.limits }

func newEnv() *Env {
	e := &Env{
		PIDNamespace: sync.OnceValues(func() (system.PIDNamespace, error) { return system.ReadPIDNamespace("/") }),
		Users:        system.NewUsers("/"),
		Disks:        system.NewDisks("/"),
		symbols:      stack.NewKernel(),
	}
	e.limits = limit.NewReporter(func(err error) {
		if e.warn != nil {
			e.warn(err)
		}
	})
	e.cgroups = sync.OnceValues(func() (*system.Cgroups, error) { return openCgroups(e.limits) })
	return e
}

// prefetch begins in the background what takes time and does not depend on the options: the kernel's
// types and the cgroups.
func (e *Env) prefetch() {
	if hasManyDescriptors() {
		e.kernel.Prefetch()
		go e.cgroups()
	}
}

// hasManyDescriptors reports whether files can be open earlier than necessary, without exceeding the limit
// of open files.
func hasManyDescriptors() bool {
	const many = 1024
	var limit unix.Rlimit
	return unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil && limit.Cur >= many
}

// HasTaskFilter reports whether the command line has a task filter, so that a run does not concern all
// tasks of the machine.
func (e *Env) HasTaskFilter() bool { return e.tasks != nil && !reflect.ValueOf(*e.tasks).IsZero() }

// Processes returns the processes of --pid, or those that are currently in the cgroup or container
// of the command line; none if all are selected.
func (e *Env) Processes() ([]uint32, error) {
	if len(e.PIDs) > 0 || e.tasks == nil {
		return e.PIDs, nil
	}
	targets, err := e.tasks.targets(e)
	var all []uint32
	for _, t := range targets {
		pids, err := t.Processes("/")
		if err != nil {
			return nil, err
		}
		all = append(all, pids...)
	}
	return all, err
}

// CheckLeaders returns an error if --tid selects a thread that is not a thread-group leader, for runs
// that show processes.
func (e *Env) CheckLeaders() error {
	if e.tasks == nil {
		return nil
	}
	for _, tid := range e.tasks.TID {
		pid, err := system.ProcessOf("/", tid)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has exited
		}
		if err != nil {
			return err
		}
		if pid != tid {
			return fmt.Errorf("--tid %d: it is a thread of process %d, which is not a row of its own", tid, pid)
		}
	}
	return nil
}

// Cgroups returns the machine's cgroups.
func (e *Env) Cgroups() (*system.Cgroups, error) {
	c, err := e.cgroups()
	if err != nil {
		return nil, fmt.Errorf("read cgroups: %w", err)
	}
	return c, nil
}

// rememberCgroups reads all cgroups, so that cgroups have names even if they are removed before an
// event is read.
func (e *Env) rememberCgroups() error {
	c, err := e.Cgroups()
	if err != nil {
		return err
	}
	return c.Snapshot()
}

// Owner returns the owner of a cgroup, such as a container, as far as it is known.
func (e *Env) Owner(cgroupID uint64) system.Owner {
	c, err := e.Cgroups()
	if err != nil {
		return system.Owner{}
	}
	return c.Owner(cgroupID)
}

// CgroupPath returns the path of a cgroup in its hierarchy, or "".
func (e *Env) CgroupPath(id uint64) string {
	c, err := e.Cgroups()
	if err != nil {
		return ""
	}
	path, _ := c.Path(id)
	return path
}

// HasProc reports whether /proc belongs to the PID namespace of corescope. If not, files of a process
// must not be read there, because /proc/PID can be another process.
func (e *Env) HasProc() bool {
	ns, _ := e.PIDNamespace() // OtherProc is valid even with an error
	return !ns.OtherProc
}

// checkProc returns an error if /proc does not belong to the PID namespace of corescope.
//
// Returns system.ErrOtherProc.
func (e *Env) checkProc() error {
	ns, err := e.PIDNamespace()
	if err == nil && ns.OtherProc {
		err = system.ErrOtherProc
	}
	if errors.Is(err, system.ErrOtherProc) {
		return fmt.Errorf("%w (%s)", err, mountProc)
	}
	return err
}

// checkSelf returns an error if /proc does not contain corescope: the library that loads objects
// reads /proc/self.
//
// Returns system.ErrOtherProc.
func (e *Env) checkSelf() error {
	if _, err := e.PIDNamespace(); errors.Is(err, system.ErrOtherProc) {
		return fmt.Errorf("%w (%s)", err, mountProc)
	}
	return nil
}

// mountProc is the remedy for system.ErrOtherProc.
const mountProc = "mount the /proc of this namespace with 'mount -t proc proc /proc', " +
	"or run corescope in the PID namespace of /proc"

// OwnPID returns the PID of corescope, in the PID namespace that programs compare with
// (task_local_pid of task.bpf.h).
//
// Returns system.ErrOtherProc if that namespace is unknown.
func (e *Env) OwnPID() (uint32, error) {
	if ns, err := e.PIDNamespace(); !ns.Initial && ns.Inode == 0 {
		return 0, fmt.Errorf("find own process: %w", err)
	}
	return uint32(os.Getpid()), nil
}

// KernelEnum returns the names of an enum of the running kernel, keyed by value.
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

// KernelTypes returns the types of the running kernel, or of one of its modules.
//
// Returns probe.ErrNoBTF.
func (e *Env) KernelTypes(module string) (*btf.Spec, error) {
	if module == "" {
		return e.kernel.Types()
	}
	return e.kernel.ModuleTypes(module)
}

// ProcessesIn returns the processes that are currently in a cgroup or container.
func (e *Env) ProcessesIn(cgroup, container string) ([]uint32, error) {
	selected := *e
	selected.PIDs, selected.tasks = nil, &tasks{Cgroup: cgroup, Container: container}
	return selected.Processes()
}

// FileID returns the ID of a file in programs.
//
// Returns ErrUnsupported on a btrfs whose types the kernel does not describe (module before 5.11).
// A file then has the same numbers as files in other subvolumes.
func (e *Env) FileID(path string) (system.FileID, error) {
	return e.checkBtrfs(system.ReadFileID(path))
}

// DirectoryID is FileID for a directory.
func (e *Env) DirectoryID(path string) (system.FileID, error) {
	return e.checkBtrfs(system.ReadDirectoryID(path))
}

// checkBtrfs returns an error for a file on btrfs if programs cannot read its subvolume.
func (e *Env) checkBtrfs(id system.FileID, err error) (system.FileID, error) {
	if err != nil || !id.Btrfs || e.kernel == nil || e.kernel.Has("btrfs_inode") {
		return id, err
	}
	return id, fmt.Errorf("determine btrfs subvolume: %w: no BTF of the btrfs module (needs kernel 5.11)", ErrUnsupported)
}

// PerCPU returns the variables of percpu.bpf.h. The error is ErrUnsupported if per-CPU variables of
// the kernel cannot be found: before 5.19, if /proc/kallsyms is not readable. The other variables
// are valid nevertheless.
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
		return vars, fmt.Errorf("find per-CPU variables: %w: %w", ErrUnsupported, err)
	}
	vars["percpu_offsets"] = offsets
	return vars, nil
}

// hasHelper reports whether programs can call bpf_NAME. It returns true if the kernel has no BTF:
// loading the programs then reports that error.
func (e *Env) hasHelper(name string) bool {
	helpers, err := e.KernelEnum("bpf_func_id")
	if err != nil {
		return true
	}
	return slices.Contains(slices.Collect(maps.Values(helpers)), "BPF_FUNC_"+name)
}

// Machine returns the machine's data for stack traces.
func (e *Env) Machine() stacktrace.Machine {
	return stacktrace.Machine{Kernel: e.symbols, Limits: e.limits, HasProc: e.HasProc()}
}

// KernelStack symbolizes the addresses of bpf_get_stack and appends the frames to dst, without the
// BPF program and its callers. It needs CAP_SYSLOG (see Plan.Keep).
func (e *Env) KernelStack(dst value.Stack, addrs []uint64) value.Stack {
	e.frames = e.symbols.Append(e.frames[:0], addrs)
	dst = dst[:0]
	for _, f := range e.frames[stacktrace.ProgramFrames(e.frames):] {
		dst = append(dst, value.Frame{Symbol: f.Name, Module: f.Module, Offset: f.Offset, Address: value.Address(f.Addr)})
	}
	return dst
}

// KernelName returns the name of the kernel function at an address, or the address if the function
// is unknown. It needs CAP_SYSLOG (see Plan.Keep).
func (e *Env) KernelName(addr uint64) string {
	e.frames = e.symbols.Append(e.frames[:0], []uint64{addr})
	if len(e.frames) == 0 || e.frames[0].Name == "" {
		return fmt.Sprintf("0x%x", addr)
	}
	return e.frames[0].Name
}

// KernelFunctions symbolizes return addresses in the kernel. The frames have no positions in their
// functions, so that calls of the same functions are equal. It needs CAP_SYSLOG (see Plan.Keep).
func (e *Env) KernelFunctions(addrs []uint64) value.Stack {
	var s value.Stack
	for _, f := range e.symbols.Append(nil, addrs) {
		frame := value.Frame{Symbol: f.Name, Module: f.Module, Kernel: true}
		if f.Name == "" {
			frame.Address = value.Address(f.Addr)
		}
		s = append(s, frame)
	}
	return s
}

// UserStack symbolizes a stack that user_stack_read has written and appends its frames to dst, none
// if it is empty. It is available for events with UserStacks, and needs the capabilities of
// UserStackNeeds (see Plan.Keep). Frames of a process that has exited are symbolized from what was
// read before.
func (e *Env) UserStack(dst value.Stack, sample []byte) value.Stack {
	if e.Traces == nil {
		return dst[:0]
	}
	return e.Traces.Append(dst[:0], sample)
}

// UserAddress symbolizes an address in a process and appends its frames to dst. at is a boot time when
// the process used the address. Like UserStack, it is available for events with UserStacks; in a
// child PID namespace, where the process may have another number, it appends nothing.
func (e *Env) UserAddress(dst value.Stack, pid uint32, addr, at uint64) value.Stack {
	if ns, err := e.PIDNamespace(); e.Traces == nil || err != nil || !ns.Initial || ns.OtherProc {
		return dst
	}
	return e.Traces.AppendAddress(dst, pid, addr, at)
}

// UserStackNeeds returns the capabilities that a run with user stacks needs once all hooks are
// attached: to symbolize addresses of processes, to create further maps for unwind tables, and to
// open perf events on CPUs that come online, as all but one do after suspend.
func UserStackNeeds() []system.Capability {
	return slices.AppendSeq([]system.Capability{system.CapBPF, system.CapPerfmon}, fileCapabilities().All())
}
