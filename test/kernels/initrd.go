package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/test/kernels/plan"
)

// Users and groups that tests need.
const (
	users  = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
	groups = "root:x:0:\nnogroup:x:65534:\n"
)

// build compiles the programs that machines of the architecture run, into dir.
func build(ctx context.Context, arch, dir string, all []*tool.Tool) error {
	jobs := map[string][]string{
		"init":      {"build", "./test/kernels/machine"},
		"corescope": {"build", "./cmd/corescope"},
		"test2json": {"build", "cmd/test2json"},
	}
	for _, t := range all {
		jobs[t.Name+".test"] = []string{"test", "-c", "./" + folderOf(t)}
	}
	for name, job := range jobs {
		what := len(job) - 1
		args := slices.Concat(job[:what], []string{"-ldflags=-s -w", "-o", filepath.Join(dir, name)}, job[what:])
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s for %s: %w: %s", job[what], arch, err, out)
		}
	}
	return nil
}

// makeInitrd writes the root file system of a machine, with the first program in dir. The others are
// on the disk (makeDisk), because all tests together do not fit in the memory of a machine.
func makeInitrd(to, dir, busybox string, img *image, k kernel, all []*tool.Tool) error {
	tree, err := openModules(img.modules)
	if err != nil {
		return err
	}
	p, err := makePlan(tree, k, all)
	if err != nil {
		return err
	}
	a := newArchive()
	files := map[string]string{"init": dir + "/init", "bin/busybox": busybox}
	for _, t := range all {
		a.mkdir("src/" + t.Name)
		if err := a.addTree("src/"+t.Name+"/testdata", folderOf(t)+"/testdata"); err != nil {
			return fmt.Errorf("pack test data: %w", err)
		}
	}
	for name, from := range files {
		if err := a.addFile(name, from); err != nil {
			return fmt.Errorf("pack initrd: %w", err)
		}
	}
	for name, ko := range tree.files {
		a.add("modules/"+name, 0o644, ko)
	}
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write plan: %w", err)
	}
	a.add("plan.json", 0o644, text)
	a.add("etc/passwd", 0o644, []byte(users))
	a.add("etc/group", 0o644, []byte(groups))
	if err := a.write(to); err != nil {
		return fmt.Errorf("write initrd: %w", err)
	}
	return nil
}

func makePlan(tree *moduleTree, k kernel, all []*tool.Tool) (*plan.Plan, error) {
	p := &plan.Plan{Hybrid: k.hybrid, Short: isShort()}
	var err error
	if p.Modules, err = tree.needAll(modules); err != nil {
		return nil, err
	}
	for _, t := range all {
		entry := plan.Tool{Name: t.Name, Args: toolNeeds[t.Name].args, Explain: toolNeeds[t.Name].explain, Whole: isSuite(t)}
		if entry.Events, err = hasEvents(t); err != nil {
			return nil, err
		}
		if entry.Modules, err = tree.needAll(toolNeeds[t.Name].modules); err != nil {
			return nil, err
		}
		p.Tools = append(p.Tools, entry)
	}
	return p, nil
}

// hasEvents reports whether the tool sends events, through a ring buffer or perf buffers.
func hasEvents(t *tool.Tool) (bool, error) {
	spec, err := t.Object()
	if err != nil {
		return false, fmt.Errorf("read BPF object of %s: %w", t.Name, err)
	}
	return spec.Maps["events"] != nil, nil
}
