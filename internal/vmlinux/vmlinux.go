// Package vmlinux reads of the running kernel's types just those that are asked for by
// name. Decoding all of them takes ten times as long, and megabytes; a tool needs some
// dozens of a hundred thousand.
package vmlinux

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// folder has the kernel's types and those of its modules, a file each.
const folder = "/sys/kernel/btf"

// Found is what the kernel has of the names.
type Found struct {
	// Types are those of the names, with all that lies within them. What they only point
	// to has no members and no name, and the IDs are not the kernel's.
	Types *btf.Spec
	ids   map[symbol][]btf.TypeID
}

// symbol is a name of a kind; functions and types may share one.
type symbol struct {
	kind kind
	name string
}

// Func returns the IDs that the kernel gives to functions of the name.
func (f *Found) Func(name string) []btf.TypeID { return f.ids[symbol{kindFunc, name}] }

// Typedef returns the IDs that the kernel gives to typedefs of the name.
func (f *Found) Typedef(name string) []btf.TypeID { return f.ids[symbol{kindTypedef, name}] }

// Find looks for types and functions in the kernel, and not in its modules. The error is
// fs.ErrNotExist if the kernel does not show its types.
func Find(names map[string]bool) (*Found, error) {
	raw, free, err := open(filepath.Join(folder, "vmlinux"))
	if err != nil {
		return nil, fmt.Errorf("read kernel BTF: %w", err)
	}
	defer free()
	found, err := find(raw, names)
	if err != nil {
		return nil, fmt.Errorf("read kernel BTF: %w", err)
	}
	return found, nil
}

func find(raw []byte, names map[string]bool) (*Found, error) {
	b, err := parse(raw)
	if err != nil {
		return nil, err
	}
	hits, err := b.scan(names)
	if err != nil {
		return nil, err
	}
	f := &Found{ids: map[symbol][]btf.TypeID{}}
	r := newReducer(b)
	for _, h := range hits {
		f.ids[h.symbol] = append(f.ids[h.symbol], btf.TypeID(h.id))
		if h.kind != kindFunc {
			r.roots[h.id] = true
		}
	}
	for _, h := range hits {
		if r.roots[h.id] {
			r.ref(h.id, false)
		}
	}
	reduced, err := r.bytes()
	if err != nil {
		return nil, err
	}
	f.Types, err = btf.LoadSpecFromReader(bytes.NewReader(reduced))
	return f, err
}

// Missing are the names that nothing was found of.
func (f *Found) Missing(names map[string]bool) map[string]bool {
	missing := map[string]bool{}
	for name := range names {
		missing[name] = true
	}
	for s := range f.ids {
		delete(missing, s.name)
	}
	return missing
}

// InModules tells whether a loaded module has a type or function of one of the names.
func InModules(names map[string]bool) (bool, error) {
	for path, err := range modules() {
		if err != nil {
			return false, err
		}
		has, err := moduleHas(path, names)
		if err != nil || has {
			return has, err
		}
	}
	return false, nil
}

// modules are the files of modules; these may go at any time.
func modules() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		files, err := os.ReadDir(folder)
		if err != nil {
			yield("", fmt.Errorf("list modules: %w", err))
			return
		}
		for _, f := range files {
			if f.Name() != "vmlinux" && !yield(filepath.Join(folder, f.Name()), nil) {
				return
			}
		}
	}
}

func moduleHas(path string, names map[string]bool) (bool, error) {
	raw, free, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read module's BTF: %w", err)
	}
	defer free()
	b, err := parse(raw)
	if err != nil {
		return false, fmt.Errorf("read module's BTF: %w", err)
	}
	return b.hasString(names), nil
}

// open maps the file where the kernel can do that (6.16), which takes no memory, and else
// reads it into memory that can be given back at once.
func open(path string) (raw []byte, free func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	size := int(info.Size())
	raw, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err == nil {
		return raw, func() { _ = unix.Munmap(raw) }, nil
	}
	if raw, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return nil, nil, err
	}
	free = func() { _ = unix.Munmap(raw) }
	n, err := f.ReadAt(raw, 0)
	if n < size && err != nil {
		free()
		return nil, nil, err
	}
	return raw, free, nil
}
