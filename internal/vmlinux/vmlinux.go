// Package vmlinux reads types of the running kernel by name. A tool needs a few dozen of a hundred
// thousand types; decoding all of them would take ten times as long and megabytes of memory.
package vmlinux

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// directory contains the BTF of the kernel and of each module, in one file each.
const directory = "/sys/kernel/btf"

// Found is the result of a search for names.
type Found struct {
	// Types are the types with the names and the types of their members. Types that they only point
	// to have no members and no name. The IDs differ from those of the kernel.
	Types *btf.Spec
	ids   map[symbol][]btf.TypeID
}

// symbol is a name and a kind. A function and a type can have the same name.
type symbol struct {
	kind kind
	name string
}

// Func returns the type IDs of the functions with this name in the kernel's BTF.
func (f *Found) Func(name string) []btf.TypeID { return f.ids[symbol{kindFunc, name}] }

// Typedef returns the type IDs of the typedefs with this name in the kernel's BTF.
func (f *Found) Typedef(name string) []btf.TypeID { return f.ids[symbol{kindTypedef, name}] }

// Struct returns the type IDs of the structs with this name in the kernel's BTF.
func (f *Found) Struct(name string) []btf.TypeID { return f.ids[symbol{kindStruct, name}] }

// Index is the BTF of the kernel, without its modules, and the hashes of all names.
type Index struct {
	blob *blob
	free func()
}

// NewIndex reads the kernel's BTF. The error is fs.ErrNotExist if the kernel has none.
func NewIndex() (*Index, error) {
	raw, free, err := open(filepath.Join(directory, "vmlinux"))
	if err != nil {
		return nil, fmt.Errorf("read kernel BTF: %w", err)
	}
	x, err := newIndex(raw)
	if err != nil {
		free()
		return nil, err
	}
	x.free = sync.OnceFunc(free)
	runtime.AddCleanup(x, func(free func()) { free() }, x.free)
	return x, nil
}

func newIndex(raw []byte) (*Index, error) {
	b, err := parse(raw)
	if err == nil {
		err = b.index()
	}
	if err != nil {
		return nil, fmt.Errorf("read kernel BTF: %w", err)
	}
	return &Index{blob: b, free: func() {}}, nil
}

// Close frees the memory of the BTF.
func (x *Index) Close() { x.free() }

// Find searches for types and functions.
func (x *Index) Find(names map[string]bool) (*Found, error) {
	hits, err := x.blob.search(names)
	if err != nil {
		return nil, fmt.Errorf("search kernel BTF: %w", err)
	}
	f := &Found{ids: map[symbol][]btf.TypeID{}}
	for _, h := range hits {
		f.ids[h.symbol] = append(f.ids[h.symbol], btf.TypeID(h.id))
	}
	if f.Types, err = x.blob.reduce(hits); err != nil {
		return nil, fmt.Errorf("search kernel BTF: %w", err)
	}
	return f, nil
}

// Find searches the kernel, without its modules, for types and functions. The error is fs.ErrNotExist
// if the kernel has no BTF.
func Find(names map[string]bool) (*Found, error) {
	x, err := NewIndex()
	if err != nil {
		return nil, err
	}
	defer x.Close()
	return x.Find(names)
}

// reduce returns the types among the hits and the types of their members.
func (b *blob) reduce(hits []hit) (*btf.Spec, error) {
	r := newReducer(b)
	for _, h := range hits {
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
	return btf.LoadSpecFromReader(bytes.NewReader(reduced))
}

// Missing returns the names that were not found.
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

// open maps the file if the kernel supports that (6.16), which needs no memory. Otherwise it reads the
// file into memory that can be released immediately.
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
