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

// errNotHere is of a program that cannot be had on this machine.
var errNotHere = errors.New("not here")

// builder makes a program in a folder of its own.
type builder struct {
	ctx context.Context
	dir string
	// args are what is run, twin is the same program with its symbols.
	args []string
	twin string
	env  []string
	// started is done when it runs, ended when the figures are there.
	started, ended func(pid int) error
}

func (b *builder) path(name string) string { return filepath.Join(b.dir, name) }

// source puts a source there and returns its path.
func (b *builder) source(name string) (string, error) {
	text, err := sources.ReadFile("sources/" + name)
	if err != nil {
		return "", err
	}
	file := b.path(strings.TrimSuffix(name, ".txt"))
	return file, os.WriteFile(file, text, 0o644)
}

func (b *builder) do(name string, args ...string) error {
	if _, err := exec.LookPath(name); err != nil {
		return fmt.Errorf("%w: %s is not installed", errNotHere, name)
	}
	cmd := exec.CommandContext(b.ctx, name, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), b.env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// compile makes b.dir/prog of a source, by a compiler that takes -o.
func (b *builder) compile(compiler, source string, flags ...string) error {
	file, err := b.source(source)
	if err != nil {
		return err
	}
	b.args, b.twin = []string{b.path("prog")}, b.path("prog")
	return b.do(compiler, append([]string{"-o", b.twin, file}, flags...)...)
}

func (b *builder) c(source string, flags ...string) error {
	return b.compile("gcc", source, append([]string{"-O2", "-Wl,--build-id"}, flags...)...)
}

// strip keeps a twin of the program, which loses its symbols.
func (b *builder) strip() error {
	b.twin = b.path("twin")
	if err := os.Rename(b.path("prog"), b.twin); err != nil {
		return err
	}
	return b.do("strip", "-o", b.path("prog"), b.twin)
}

// link puts the symbols into a file of their own, to which a link in the program leads.
func (b *builder) link() error {
	if err := b.strip(); err != nil {
		return err
	}
	if err := b.do("objcopy", "--only-keep-debug", b.twin, "prog.debug"); err != nil {
		return err
	}
	return b.do("objcopy", "--add-gnu-debuglink=prog.debug", "prog")
}

// debugFolder is where debuggers look by build-id.
const debugFolder = "/usr/lib/debug/.build-id"

// byID puts the symbols where the build-id leads to.
func (b *builder) byID() error {
	if err := b.strip(); err != nil {
		return err
	}
	id, err := buildID(b.twin)
	if err != nil {
		return err
	}
	dir := filepath.Join(debugFolder, id[:2])
	_, err = os.Stat(dir)
	isNew := err != nil
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, id[2:]+".debug")
	b.ended = func(int) error {
		if isNew {
			return os.RemoveAll(dir)
		}
		return os.RemoveAll(file)
	}
	return b.do("objcopy", "--only-keep-debug", b.twin, file)
}

func buildID(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	const header = 16 // of the note, with the owner's name
	s := f.Section(".note.gnu.build-id")
	if s == nil || s.Size <= header {
		return "", fmt.Errorf("%s has no build-id", file)
	}
	note, err := s.Data()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", note[header:]), nil
}

// miniDebug puts the symbols into the program again, compressed.
func (b *builder) miniDebug() error {
	if err := b.strip(); err != nil {
		return err
	}
	if err := b.do("objcopy", "--only-keep-debug", b.twin, "debug"); err != nil {
		return err
	}
	if err := b.do("objcopy", "--strip-debug", "debug", "mini"); err != nil {
		return err
	}
	if err := b.do("xz", "-k", "mini"); err != nil {
		return err
	}
	return b.do("objcopy", "--add-section", ".gnu_debugdata=mini.xz", "prog")
}

// elsewhere runs it from a file system that only its own mount namespace has.
func (b *builder) elsewhere() error {
	if err := b.do("unshare", "-m", "true"); err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
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
	return b.do("go", append(append([]string{"build", "-o", b.twin}, flags...), file)...)
}

// python finds an interpreter that is new enough for the option, and has the chain run by it.
func (b *builder) python(least string, option ...string) error {
	file, err := b.source("chain.py")
	if err != nil {
		return err
	}
	const check = `import sys; sys.exit(sys.version_info < tuple(map(int, sys.argv[1].split("."))))`
	for _, name := range []string{"python3", "python3.14", "python3.13", "python3.12"} {
		if b.do(name, "-c", check, least) == nil {
			b.args = append(append([]string{name}, option...), file)
			return nil
		}
	}
	return fmt.Errorf("%w: no python of %s or newer", errNotHere, least)
}

func (b *builder) node() error {
	file, err := b.source("chain.js")
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("node"); err != nil {
		return fmt.Errorf("%w: node is not installed", errNotHere)
	}
	b.args = []string{"node", "--perf-basic-prof", "--interpreted-frames-native-stack", file}
	b.ended = removeJITFiles
	return nil
}

// removeJITFiles removes what a process has told of its code.
func removeJITFiles(pid int) error {
	for _, form := range []string{"/tmp/perf-%d.map", "/tmp/jit-%d.dump"} {
		if err := os.Remove(fmt.Sprintf(form, pid)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// deleted removes the program as soon as it runs.
func (b *builder) deleted() error {
	b.twin = b.path("twin")
	if err := b.do("cp", "prog", "twin"); err != nil {
		return err
	}
	b.started = func(int) error { return os.Remove(b.path("prog")) }
	return nil
}
