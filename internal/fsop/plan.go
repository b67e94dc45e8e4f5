package fsop

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/flags"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/value"
)

const text = `Operations are calls of file system functions such as ext4_file_read_iter (hook function). ` +
	`This covers the types %s, if the kernel has them when the tool starts. ` +
	`The time is that of the file system. It excludes the work of the virtual file system (VFS) before and after ` +
	`the call, such as waiting for a frozen file system. ` +
	`A stacked file system such as overlay calls the functions of the lower file system: both calls are reported, ` +
	`before kernel 6.7 both with the path on the upper one. ` +
	`A synchronous write is reported as a write and an fsync within it. ` +
	`Reads by sendfile and splice use other functions and are not traced.

` +
	`If a tool cannot attach to the functions of one of these types, or if --type names another type, ` +
	`operations are system calls on regular files of any type (hook syscall): ` +
	`the read and write calls; sendfile, splice and copy_file_range, which read one file and write another; ` +
	`fsync and fdatasync, also on directories; and successful opens. ` +
	`The time is that of the system call and includes the VFS: path lookup, waiting for locks, creating the file. ` +
	`The part of the file system in it is not measured. ` +
	`I/O by io_submit(2), io_uring and the kernel itself is not traced with this hook. ` +
	`Access to mapped memory is not traced with either hook. ` +
	`Operations that were in progress when the tool was attached are not shown; they are not lost events. ` +
	`Calls whose file descriptor another thread closes during the call are counted in the summary (closed).

` +
	`The function hook also traces reads and writes of AIO and io_uring. ` +
	`If a function only queues a request, the request continues after the function returns. ` +
	`Its duration is unknown; such requests are counted in the summary (queued). ` +
	`io_uring first tries without blocking, so one read can appear as two operations, ` +
	`the first of which fails with EAGAIN.`

// Options select operations.
type Options struct {
	Type      []string `flag:"type,t" arg:"TYPE" bpf:"targ_types" help:"only file systems of these types, such as ext4 or nfs"`
	Operation []string `flag:"operation" arg:"OPERATION" help:"only these operations: read, write, open, fsync, getattr"`
}

// Plan returns a plan that attaches to the functions of the file systems, with system calls
// as the fallback.
func (o *Options) Plan() (tool.Plan, error) {
	ops, err := o.operations()
	if err != nil {
		return tool.Plan{}, err
	}
	names := o.kernelNames()
	return tool.Plan{
		Variables: map[string]any{"targ_types": names, "targ_nr_types": uint32(len(names)), "targ_ops": ops},
		StandIns:  []tool.StandIn{{Hook: "syscall", For: "function", Means: syscallsMean}},
		Resolve: func(p *tool.Plan, _ *tool.Kernel) (err error) {
			if err := o.check(); err != nil {
				return err
			}
			p.Instances, err = instances(selectTypes(o.Type), ops)
			return err
		},
	}, nil
}

// SyscallPlan returns a plan that traces system calls only.
func (o *Options) SyscallPlan() (tool.Plan, error) {
	plan, err := o.Plan()
	plan.Without, plan.StandIns = []string{"function"}, nil
	plan.Resolve = func(*tool.Plan, *tool.Kernel) error { return o.check() }
	return plan, err
}

// check returns an error for a type that is neither in the list nor registered in this kernel.
func (o *Options) check() error {
	registered, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("read types of file systems: %w", err)
	}
	for _, name := range o.Type {
		_, ok := find(name)
		if !ok && !slices.Contains(strings.Fields(string(registered)), name) {
			return fmt.Errorf("%w: --type %s: unknown to this kernel (see /proc/filesystems)", flags.ErrUsage, name)
		}
	}
	return nil
}

// operations returns a bit mask of the selected operations, 0 for all.
func (o *Options) operations() (bits uint32, err error) {
	for _, name := range o.Operation {
		op, ok := value.ParseFileOp(name)
		if !ok {
			return 0, fmt.Errorf("--operation %s: unknown operation (use read, write, open, fsync or getattr)", name)
		}
		bits |= 1 << op
	}
	return bits, nil
}

// kernelNames returns the names of the selected types in the kernel.
func (o *Options) kernelNames() []string {
	var out []string
	for _, name := range o.Type {
		if fs, ok := find(name); ok {
			out = append(out, fs.types...)
		} else {
			out = append(out, name)
		}
	}
	return out
}

// Aliases returns the names of peers' tools for a single type of file system: ext4slower.
func Aliases(suffix string) []tool.Alias {
	var out []tool.Alias
	for _, name := range []string{"bcachefs", "btrfs", "ext4", "f2fs", "fuse", "nfs", "xfs", "zfs"} {
		out = append(out, tool.Alias{Name: name + suffix, Args: []string{"--type", name}})
	}
	return out
}

// syscallsMean is the note on the system call fallback.
const syscallsMean = "system calls are traced: times include the virtual file system (VFS), and getattr is not traced"

// Text describes in manual pages which operations are traced.
func Text() string {
	var names []string
	for _, fs := range fileSystems() {
		names = append(names, fs.name)
	}
	return fmt.Sprintf(text, strings.Join(names, ", "))
}
