package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "truth:", err)
		os.Exit(1)
	}
}

// errOutside is returned if a number is outside its bound.
var errOutside = errors.New("a number is outside its bound")

func run(ctx context.Context) error {
	root, err := output(ctx, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return fmt.Errorf("find tree: %w", err)
	}
	root = strings.TrimSpace(root)
	scratch, err := os.MkdirTemp("/var/tmp", "corescope-truth-")
	if err != nil {
		return fmt.Errorf("make scratch directory: %w", err)
	}
	defer os.RemoveAll(scratch)
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(scratch, "corescope"), "./cmd/corescope")
	build.Dir, build.Env, build.Stderr = root, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build corescope: %w", err)
	}
	unmount, err := mountTracefs()
	if err != nil {
		return err
	}
	defer unmount()
	only := strings.Fields(os.Getenv("TOOLS"))
	var results []result
	for _, c := range comparisons() {
		if len(only) > 0 && !slices.Contains(only, c.tool) {
			continue
		}
		results = append(results, c.result(ctx, &machine{root: root, scratch: scratch}))
		if err := ctx.Err(); err != nil {
			return err // and keep the page
		}
	}
	path := filepath.Join(root, "docs/truth.md")
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read document: %w", err)
	}
	text, err := document(root, old, results)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write document: %w", err)
	}
	for _, r := range results {
		if r.isOutside() {
			return errOutside
		}
	}
	return nil
}

// machine is the environment of the comparisons.
type machine struct {
	root    string // the project's tree
	scratch string // an empty directory on a disk, with the binary "corescope"
}

// path returns a path in the scratch directory.
func (m *machine) path(name string) string { return filepath.Join(m.scratch, name) }

// output runs a command and returns its standard output.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("run %s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// mountTracefs mounts tracefs, which some tools and references need, unless it is mounted.
func mountTracefs() (unmount func(), err error) {
	const path = "/sys/kernel/tracing"
	if _, err := os.Stat(path + "/events"); err == nil {
		return func() {}, nil
	}
	if err := unix.Mount("tracefs", path, "tracefs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount tracefs: %w", err)
	}
	return func() { _ = unix.Unmount(path, unix.MNT_DETACH) }, nil
}
