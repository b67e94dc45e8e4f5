package vmlinux

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// InModules is the result of a search in loaded modules for names that the kernel itself lacks.
type InModules struct {
	// Types has, for each module with a type of one of the names, these types and the types of their
	// members, as in [Found].
	Types []*btf.Spec
	// Functions reports whether one of the names is a function or tracepoint of a module. Programs
	// are attached to these by IDs of the module's BTF.
	Functions bool
}

// FindInModules searches the loaded modules for types and functions.
func FindInModules(names map[string]bool) (*InModules, error) {
	found := &InModules{}
	m := &moduleReader{names: names}
	defer m.close()
	for path, err := range modules() {
		if err == nil {
			err = m.read(path, found)
		}
		if err != nil {
			return nil, fmt.Errorf("read BTF of modules: %w", err)
		}
	}
	return found, nil
}

// modules lists the BTF files of modules. Modules can be unloaded at any time.
func modules() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		files, err := os.ReadDir(directory)
		if err != nil {
			yield("", err)
			return
		}
		for _, f := range files {
			if f.Name() != "vmlinux" && !yield(filepath.Join(directory, f.Name()), nil) {
				return
			}
		}
	}
}

// moduleReader reads the BTF of modules. It reads that of the kernel when a module has one of the names.
type moduleReader struct {
	names map[string]bool
	base  *blob
	free  func()
}

func (m *moduleReader) close() {
	if m.free != nil {
		m.free()
	}
}

func (m *moduleReader) read(path string, found *InModules) error {
	raw, free, err := open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer free()
	b, err := parse(raw)
	if err != nil || !b.hasString(m.names) {
		return err
	}
	if b.base, err = m.kernel(); err != nil {
		return err
	}
	return b.find(m.names, found)
}

// kernel returns the BTF of the kernel, on which the BTF of modules is based.
func (m *moduleReader) kernel() (*blob, error) {
	if m.base != nil {
		return m.base, nil
	}
	raw, free, err := open(filepath.Join(directory, "vmlinux"))
	if err != nil {
		return nil, err
	}
	m.free = free
	if m.base, err = parse(raw); err != nil {
		return nil, err
	}
	return m.base, m.base.index()
}

// find adds the types and functions of a module.
func (b *blob) find(names map[string]bool, found *InModules) error {
	if err := b.index(); err != nil {
		return err
	}
	hits, err := b.search(names)
	if err != nil {
		return err
	}
	types := 0
	for _, h := range hits {
		if h.kind == kindFunc || strings.HasPrefix(h.name, "btf_trace_") {
			found.Functions = true
		} else {
			types++
		}
	}
	if types == 0 {
		return nil
	}
	spec, err := b.reduce(hits)
	if err == nil {
		found.Types = append(found.Types, spec)
	}
	return err
}
