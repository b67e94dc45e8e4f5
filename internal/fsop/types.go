// Package fsop is what the tools of operations on files share (fsop.bpf.h): the types of file
// systems, their functions in the kernel, and the words for them.
package fsop

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

// fileSystem is a type of file systems as users call it, and its functions in the kernel.
type fileSystem struct {
	name string
	// types are the kernel's names, several for what one module has.
	types []string
	// functions are by operation, in the order of value.FileOp. Several have a space between
	// them.
	functions [operations]string
}

const operations = 5

func fileSystems() []fileSystem {
	return []fileSystem{
		{"bcachefs", []string{"bcachefs"}, [...]string{
			"bch2_read_iter", "bch2_write_iter", "bch2_open", "bch2_fsync", "bch2_getattr",
		}},
		{"btrfs", []string{"btrfs"}, [...]string{
			"btrfs_file_read_iter", "btrfs_file_write_iter", "btrfs_file_open", "btrfs_sync_file", "btrfs_getattr",
		}},
		{"ceph", []string{"ceph"}, [...]string{"ceph_read_iter", "ceph_write_iter", "ceph_open", "ceph_fsync", "ceph_getattr"}},
		{"ext4", []string{"ext4", "ext3", "ext2"}, [...]string{
			"ext4_file_read_iter", "ext4_file_write_iter", "ext4_file_open", "ext4_sync_file", "ext4_file_getattr",
		}},
		{"f2fs", []string{"f2fs"}, [...]string{
			"f2fs_file_read_iter", "f2fs_file_write_iter", "f2fs_file_open", "f2fs_sync_file", "f2fs_getattr",
		}},
		{"fuse", []string{"fuse", "fuseblk", "virtiofs"}, [...]string{
			"fuse_file_read_iter", "fuse_file_write_iter", "fuse_open", "fuse_fsync", "fuse_getattr",
		}},
		{"nfs", []string{"nfs", "nfs4"}, [...]string{
			"nfs_file_read", "nfs_file_write", "nfs_file_open nfs4_file_open", "nfs_file_fsync", "nfs_getattr",
		}},
		{"overlay", []string{"overlay"}, [...]string{"ovl_read_iter", "ovl_write_iter", "ovl_open", "ovl_fsync", "ovl_getattr"}},
		{"xfs", []string{"xfs"}, [...]string{
			"xfs_file_read_iter", "xfs_file_write_iter", "xfs_file_open", "xfs_file_fsync", "xfs_vn_getattr",
		}},
		{"zfs", []string{"zfs"}, [...]string{"zpl_iter_read", "zpl_iter_write", "zpl_open", "zpl_fsync", "zpl_getattr"}},
	}
}

func find(name string) (fileSystem, bool) {
	all := fileSystems()
	i := slices.IndexFunc(all, func(fs fileSystem) bool { return fs.name == name })
	if i < 0 {
		return fileSystem{}, false
	}
	return all[i], true
}

// chosen are the file systems of these names, or all. There are none where the functions of
// one are not known.
func chosen(names []string) []fileSystem {
	if len(names) == 0 {
		return fileSystems()
	}
	var out []fileSystem
	for _, name := range names {
		fs, ok := find(name)
		if !ok {
			return nil
		}
		out = append(out, fs)
	}
	return out
}

// instances are the functions that this kernel has of the file systems: an instance of the hook
// for each operation, whose first number is the operation's << 8. What a file system lacks of
// them is a target too, which attaching refuses and tells. ops are the bits of those operations
// that are wanted, none for all.
func instances(all []fileSystem, ops uint32) ([]tool.Instance, error) {
	there, err := functions(all)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(fs fileSystem) bool { return !fs.isIn(there) })
	if len(all) == 0 {
		return nil, nil
	}
	var out []tool.Instance
	for op := range operations {
		if ops != 0 && ops&(1<<op) == 0 {
			continue
		}
		in := tool.Instance{Hook: "function", First: uint64(op) << 8, Some: true}
		for _, fs := range all {
			in.Targets = append(in.Targets, targets(strings.Fields(fs.functions[op]), there)...)
		}
		out = append(out, in)
	}
	return out, nil
}

func (fs *fileSystem) isIn(there map[string]tool.Target) bool {
	return slices.ContainsFunc(fs.names(), func(name string) bool { return there[name].Name != "" })
}

func (fs *fileSystem) names() []string { return strings.Fields(strings.Join(fs.functions[:], " ")) }

// targets are those of the functions that are there, or else the first one.
func targets(names []string, there map[string]tool.Target) []tool.Target {
	var out []tool.Target
	for _, name := range names {
		if t, ok := there[name]; ok {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		out = []tool.Target{{Name: names[0]}}
	}
	return out
}

// functions are those of the file systems that this kernel has.
func functions(all []fileSystem) (map[string]tool.Target, error) {
	there := map[string]tool.Target{}
	var names []string
	for _, fs := range all {
		names = append(names, fs.names()...)
	}
	if len(names) == 0 {
		return there, nil
	}
	var f target.Finder
	places, err := f.Find(target.Spec{Name: "(" + strings.Join(names, "|") + ")$", Regexp: true})
	if err != nil && !errors.Is(err, target.ErrNotFound) {
		return nil, fmt.Errorf("find functions of file systems: %w", err)
	}
	for _, p := range places {
		there[p.Name] = p.Target
	}
	return there, nil
}
