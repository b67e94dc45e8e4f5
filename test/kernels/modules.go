package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/corescope/corescope/test/kernels/plan"
)

// moduleTree has the modules of one kernel, and the contents of those that a machine needs.
type moduleTree struct {
	paths map[string]string // by name, "-" written as "_"
	files map[string][]byte // by the name in plan.Module, unpacked
}

func openModules(dir string) (*moduleTree, error) {
	t := &moduleTree{map[string]string{}, map[string][]byte{}}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if name, _, ok := strings.Cut(filepath.Base(path), ".ko"); ok {
			t.paths[moduleName(name)] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list modules: %w", err)
	}
	return t, nil
}

func moduleName(file string) string { return strings.ReplaceAll(file, "-", "_") }

// need returns the modules to load for "NAME PARAMETERS", in order. A module without a file is
// assumed to be built in.
func (t *moduleTree) need(word string) ([]plan.Module, error) {
	name, params, _ := strings.Cut(word, " ")
	path := t.paths[moduleName(name)]
	if path == "" {
		return nil, nil
	}
	ko, err := readModule(path)
	if err != nil {
		return nil, err
	}
	deps, err := moduleDeps(ko)
	if err != nil {
		return nil, fmt.Errorf("read dependencies of module %s: %w", name, err)
	}
	var all []plan.Module
	for _, dep := range deps {
		m, err := t.need(dep)
		if err != nil {
			return nil, err
		}
		all = append(all, m...)
	}
	file := moduleName(name) + ".ko"
	t.files[file] = ko
	return append(all, plan.Module{File: file, Params: params}), nil
}

// needAll calls need for several modules.
func (t *moduleTree) needAll(words []string) ([]plan.Module, error) {
	var all []plan.Module
	for _, word := range words {
		m, err := t.need(word)
		if err != nil {
			return nil, err
		}
		all = append(all, m...)
	}
	return all, nil
}

func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".xz") {
		if r, err = xz.NewReader(f); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", path, err)
		}
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return b, nil
}

// moduleDeps returns the names after "depends=" in the section .modinfo.
func moduleDeps(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	info := f.Section(".modinfo")
	if info == nil {
		return nil, fmt.Errorf("no section .modinfo")
	}
	text, err := info.Data()
	if err != nil {
		return nil, err
	}
	for entry := range strings.SplitSeq(string(text), "\x00") {
		if deps, ok := strings.CutPrefix(entry, "depends="); ok && deps != "" {
			return strings.Split(deps, ","), nil
		}
	}
	return nil, nil
}
