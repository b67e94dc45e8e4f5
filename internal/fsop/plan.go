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

// Options say which operations are wanted.
type Options struct {
	Type      []string `flag:"type,t" arg:"TYPE" help:"only file systems of these types, as ext4 or nfs"`
	Operation []string `flag:"operation" arg:"OPERATION" help:"only these operations: read, write, open, fsync, getattr"`
}

// FS_TYPES_MAX and FS_NAME_LEN of fssyscall.bpf.h.
const (
	maxTypes = 16
	nameLen  = 16
)

// Plan takes the functions of the file systems, or else system calls.
func (o *Options) Plan() (tool.Plan, error) {
	ops, err := o.operations()
	if err != nil {
		return tool.Plan{}, err
	}
	names := o.kernelNames()
	if len(names) > maxTypes {
		return tool.Plan{}, fmt.Errorf("--type: %d types are too many: %d at most", len(names), maxTypes)
	}
	var types [maxTypes][nameLen]byte
	for i, name := range names {
		copy(types[i][:nameLen-1], name)
	}
	return tool.Plan{
		Variables: map[string]any{"targ_types": types, "targ_nr_types": uint32(len(names)), "targ_ops": ops},
		StandIns:  []tool.StandIn{{Hook: "syscall", For: "function", Means: means}},
		Resolve: func(p *tool.Plan, _ *tool.Kernel) (err error) {
			if err := o.check(); err != nil {
				return err
			}
			p.Instances, err = instances(chosen(o.Type), ops)
			return err
		},
	}, nil
}

// check refuses types that are neither known nor in this kernel.
func (o *Options) check() error {
	there, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return fmt.Errorf("read types of file systems: %w", err)
	}
	for _, name := range o.Type {
		_, ok := find(name)
		if !ok && !slices.Contains(strings.Fields(string(there)), name) {
			return fmt.Errorf("%w: --type %s: this kernel has none (see /proc/filesystems)", flags.ErrUsage, name)
		}
	}
	return nil
}

// operations are the bits of the operations that are wanted, none for all.
func (o *Options) operations() (bits uint32, err error) {
	for _, name := range o.Operation {
		op, ok := value.ParseFileOp(name)
		if !ok {
			return 0, fmt.Errorf("--operation %s: it is read, write, open, fsync or getattr", name)
		}
		bits |= 1 << op
	}
	return bits, nil
}

// kernelNames are the kernel's names for the types.
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

// Aliases are the names that the peers have for a tool by the types: ext4slower.
func Aliases(suffix string) []tool.Alias {
	var out []tool.Alias
	for _, name := range []string{"bcachefs", "btrfs", "ext4", "f2fs", "fuse", "nfs", "xfs", "zfs"} {
		out = append(out, tool.Alias{Name: name + suffix, Args: []string{"--type", name}})
	}
	return out
}

const means = "system calls are seen, whose time has the virtual file system in it, and no getattr"

// Text is what the manuals of the tools say of what is seen.
func Text() string {
	var names []string
	for _, fs := range fileSystems() {
		names = append(names, fs.name)
	}
	return fmt.Sprintf(`The operations are calls of the file systems' own functions, as ext4_file_read_iter (hook function): of the types %s, as far as the kernel has them when the tool starts. The time is the file system's: what the virtual file system does before and after, as waiting for a file system that is frozen, is not in it. A file system that lies on another one, as overlay does, is called and calls the other: both are seen, before kernel 6.7 by the path on the upper one. A write that is synchronous is a write with an fsync in it. Reads by sendfile and splice go by other functions and are not seen.

Where one of these types cannot be had by its functions, or --type names a type that is none of them, operations are system calls (hook syscall), on regular files of any type, fsyncs on directories too: those of read and write, and sendfile, splice and copy_file_range, which read one file and write another; fsync and fdatasync; opens that succeed. The time is the system call's, with all that the virtual file system does: looking up names, waiting for locks, making the file. It is not told which part the file system has in it. What is read or written by io_submit(2), io_uring and the kernel itself is not seen there, and neither hook sees what is done by mapped memory. A call whose descriptor another thread closes meanwhile is counted in the summary (closed).

By the functions a read or write of AIO or io_uring is seen too. One that is only queued goes on when the function returns; what it takes is not known, and it is counted in the summary (queued). io_uring first tries without waiting, so that one read may be two operations, the first of which fails with EAGAIN.`,
		strings.Join(names, ", "))
}
