package main

import (
	"context"
	"debug/elf"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed sources
var sources embed.FS

// errUnavailable is returned for a program that cannot be built or run on this machine.
var errUnavailable = errors.New("unavailable")

// builder builds a program in its own directory.
type builder struct {
	ctx context.Context
	dir string
	// args is the command line of the program. twin is the path of the same program with
	// symbols.
	args []string
	twin string
	env  []string
	// started is called when the program runs, cleanup after the measurement.
	started, cleanup func(pid int) error
}

func (b *builder) path(name string) string { return filepath.Join(b.dir, name) }

// source writes an embedded source file to the directory and returns its path.
func (b *builder) source(name string) (string, error) {
	text, err := sources.ReadFile("sources/" + name)
	if err != nil {
		return "", err
	}
	file := b.path(strings.TrimSuffix(name, ".txt"))
	return file, os.WriteFile(file, text, 0o644)
}

// run runs a command in the directory.
func (b *builder) run(name string, args ...string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("%w: %s is not installed", errUnavailable, name)
	}
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), b.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// compile builds b.dir/prog from an embedded source file.
func (b *builder) compile(compiler, source string, flags ...string) error {
	file, err := b.source(source)
	if err != nil {
		return err
	}
	b.args, b.twin = []string{b.path("prog")}, b.path("prog")
	return b.run(compiler, append([]string{"-o", b.twin, file}, flags...)...)
}

func (b *builder) c(source string, flags ...string) error {
	return b.compile("gcc", source, append([]string{"-O2", "-Wl,--build-id"}, flags...)...)
}

// strip removes the symbols of the program and keeps the original as its twin.
func (b *builder) strip() error {
	b.twin = b.path("twin")
	if err := os.Rename(b.path("prog"), b.twin); err != nil {
		return err
	}
	return b.run("strip", "-o", b.path("prog"), b.twin)
}

// debugLink moves the symbols to a separate file referenced by .gnu_debuglink.
func (b *builder) debugLink() error {
	if err := b.strip(); err != nil {
		return err
	}
	if err := b.run("objcopy", "--only-keep-debug", b.twin, "prog.debug"); err != nil {
		return err
	}
	return b.run("objcopy", "--add-gnu-debuglink=prog.debug", "prog")
}

// debugDir is the directory of debug files by build-id.
const debugDir = "/usr/lib/debug/.build-id"

// debugBuildID moves the symbols to the debug file of the program's build-id.
func (b *builder) debugBuildID() error {
	if err := b.strip(); err != nil {
		return err
	}
	id, err := buildID(b.twin)
	if err != nil {
		return err
	}
	dir := filepath.Join(debugDir, id[:2])
	_, err = os.Stat(dir)
	isNew := err != nil
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, id[2:]+".debug")
	b.cleanup = func(int) error {
		if isNew {
			return os.RemoveAll(dir)
		}
		return os.RemoveAll(file)
	}
	return b.run("objcopy", "--only-keep-debug", b.twin, file)
}

func buildID(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	const header = 16 // note header and owner
	s := f.Section(".note.gnu.build-id")
	if s == nil || s.Size <= header {
		return "", fmt.Errorf("read build-id of %s: missing", file)
	}
	note, err := s.Data()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", note[header:]), nil
}

// miniDebug moves the symbols to the compressed section .gnu_debugdata.
func (b *builder) miniDebug() error {
	if err := b.strip(); err != nil {
		return err
	}
	if err := b.run("objcopy", "--only-keep-debug", b.twin, "debug"); err != nil {
		return err
	}
	if err := b.run("objcopy", "--strip-debug", "debug", "mini"); err != nil {
		return err
	}
	if err := b.run("xz", "-k", "mini"); err != nil {
		return err
	}
	return b.run("objcopy", "--add-section", ".gnu_debugdata=mini.xz", "prog")
}

// mountNamespace runs the program from a tmpfs in a private mount namespace.
func (b *builder) mountNamespace() error {
	if err := b.run("unshare", "-m", "true"); err != nil {
		return fmt.Errorf("%w: %w", errUnavailable, err)
	}
	dir := b.path("mnt")
	const script = `mount -t tmpfs none "$1" && cp "$2" "$1/prog" && exec "$1/prog"`
	b.args = []string{"unshare", "-m", "sh", "-c", script, "sh", dir, b.path("prog")}
	return os.Mkdir(dir, 0o755)
}

func (b *builder) golang(flags ...string) error {
	file, err := b.source("chain.go.txt")
	if err != nil {
		return err
	}
	b.args, b.twin = []string{b.path("prog")}, b.path("prog")
	b.env = append(b.env, "CGO_ENABLED=0", "GOFLAGS=", "GO111MODULE=off")
	return b.run("go", append(append([]string{"build", "-o", b.twin}, flags...), file)...)
}

// python uses an interpreter of at least the given version, which supports the option.
func (b *builder) python(version string, option ...string) error {
	file, err := b.source("chain.py")
	if err != nil {
		return err
	}
	const check = `import sys; sys.exit(sys.version_info < tuple(map(int, sys.argv[1].split("."))))`
	for _, name := range []string{"python3", "python3.14", "python3.13", "python3.12"} {
		if b.run(name, "-c", check, version) == nil {
			b.args = append(append([]string{name}, option...), file)
			return nil
		}
	}
	return fmt.Errorf("%w: python %s or newer is not installed", errUnavailable, version)
}

func (b *builder) node() error {
	file, err := b.source("chain.js")
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("node"); err != nil {
		return fmt.Errorf("%w: node is not installed", errUnavailable)
	}
	b.args = []string{"node", "--perf-basic-prof", "--interpreted-frames-native-stack", file}
	b.cleanup = removeJITFiles
	return nil
}

// removeJITFiles removes the perf map and jitdump of a process.
func removeJITFiles(pid int) error {
	for _, pattern := range []string{"/tmp/perf-%d.map", "/tmp/jit-%d.dump"} {
		if err := os.Remove(fmt.Sprintf(pattern, pid)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// deleted removes the file of the program as soon as it runs.
func (b *builder) deleted() error {
	b.twin = b.path("twin")
	if err := b.run("cp", "prog", "twin"); err != nil {
		return err
	}
	b.started = func(int) error { return os.Remove(b.path("prog")) }
	return nil
}
