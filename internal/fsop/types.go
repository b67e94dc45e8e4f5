// Package fsop contains what the tools for file system operations share (fsop.bpf.h): the
// file system types, their kernel functions, the options and the text of the manual page.
package fsop

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/target"
	"github.com/corescope/corescope/internal/tool"
)

// fileSystem is a type of file system and its kernel functions.
type fileSystem struct {
	name string
	// types are the names of the types that share the functions, as registered in the kernel.
	types []string
	// functions are the functions per operation, in the order of value.FileOp, separated by
	// spaces.
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

// selectTypes returns the file systems with the given names; without names, all. If the
// functions of one of them are unknown, it returns none.
func selectTypes(names []string) []fileSystem {
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

// instances returns one instance of the hook per operation, with the functions of those file
// systems that this kernel has. The ID of the first target is the operation << 8. A missing
// function of such a file system is also a target, so that attaching fails and is reported.
// ops is a bit mask of the selected operations, 0 for all.
func instances(all []fileSystem, ops uint32) ([]tool.Instance, error) {
	available, err := functions(all)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(fs fileSystem) bool { return !fs.isIn(available) })
	if len(all) == 0 {
		return nil, nil
	}
	var out []tool.Instance
	for op := range operations {
		if ops != 0 && ops&(1<<op) == 0 {
			continue
		}
		in := tool.Instance{Hook: "function", First: uint64(op) << 8, AllowPartial: true}
		for _, fs := range all {
			in.Targets = append(in.Targets, targets(strings.Fields(fs.functions[op]), available)...)
		}
		out = append(out, in)
	}
	return out, nil
}

// isIn reports whether at least one function of the file system is available.
func (fs *fileSystem) isIn(available map[string]tool.Target) bool {
	return slices.ContainsFunc(fs.names(), func(name string) bool { return available[name].Name != "" })
}

func (fs *fileSystem) names() []string { return strings.Fields(strings.Join(fs.functions[:], " ")) }

// targets returns the available functions, or a target without address for the first one if
// none is available.
func targets(names []string, available map[string]tool.Target) []tool.Target {
	var out []tool.Target
	for _, name := range names {
		if t, ok := available[name]; ok {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		out = []tool.Target{{Name: names[0]}}
	}
	return out
}

// functions returns those functions of the file systems that this kernel has, by name.
func functions(all []fileSystem) (map[string]tool.Target, error) {
	available := map[string]tool.Target{}
	var names []string
	for _, fs := range all {
		names = append(names, fs.names()...)
	}
	if len(names) == 0 {
		return available, nil
	}
	var f target.Finder
	places, err := f.Find(target.Spec{Name: "(" + strings.Join(names, "|") + ")$", Regexp: true})
	if err != nil && !errors.Is(err, target.ErrNotFound) {
		return nil, fmt.Errorf("find functions of file systems: %w", err)
	}
	for _, p := range places {
		available[p.Name] = p.Target
	}
	return available, nil
}
