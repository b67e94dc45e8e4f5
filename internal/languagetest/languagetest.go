// Package languagetest has runtimes of languages for live tests: libraries with the same probes, and
// interpreters that are installed.
package languagetest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
	"github.com/corescope/corescope/internal/usdt"
)

// files are the names of the files of runtimes.
func files() map[string]string {
	return map[string]string{
		"java": "libjvm.so", "node": "libnode.so.108", "perl": "libperl.so.5.36", "php": "libphp8.2.so", "python": "libpython3.10.so.1.0",
		"ruby": "libruby-3.1.so.3.1", "tcl": "libtcl8.6.so",
	}
}

// File returns the name of the file of a runtime.
func File(language string) string { return files()[language] }

// Probes returns probes "PROVIDER:NAME" at functions of the same names, which are also returned. Their
// arguments are those of the functions.
func Probes(names ...string) (functions []string, probes []native.Probe) {
	registers := []string{"%rdi", "%rsi", "%rdx", "%rcx", "%r8", "%r9"}
	if runtime.GOARCH == "arm64" {
		registers = []string{"x0", "x1", "x2", "x3", "x4", "x5"}
	}
	var args []string
	for _, r := range registers {
		args = append(args, "8@"+r)
	}
	for _, name := range names {
		provider, probe, _ := strings.Cut(name, ":")
		functions = append(functions, name)
		probes = append(probes, native.Probe{Function: name, Provider: provider, Name: probe, Args: strings.Join(args, " ")})
	}
	return functions, probes
}

// Open maps a library with these probes, as a runtime of the language.
func Open(t testing.TB, language string, names ...string) *native.Library {
	t.Helper()
	functions, probes := Probes(names...)
	return native.Open(t, File(language), functions, probes...)
}

var names struct {
	sync.Mutex
	kept []*byte
}

// Name returns the address of a string in the traced program, which stays there.
func Name(s string) uint64 {
	names.Lock()
	defer names.Unlock()
	text := native.Text(s)
	names.kept = append(names.kept, text)
	return native.Pointer(text)
}

// Interpreter returns an installed program that has the probe in its own file. It skips the test if there
// is none.
func Interpreter(t testing.TB, probe string, paths ...string) string {
	t.Helper()
	var seen []string
	for _, path := range paths {
		path, err := exec.LookPath(path)
		if err != nil {
			continue
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			t.Fatal(err)
		}
		f, err := binary.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		sites, _ := usdt.Read(f) // it can be a script
		f.Close()
		if slices.ContainsFunc(sites, func(s usdt.Site) bool { return s.Provider+":"+s.Name == probe }) {
			return path
		}
		seen = append(seen, path)
	}
	t.Skipf("none of %q that is installed (%q) has the probe %s", paths, seen, probe)
	return ""
}

// Real returns the arguments of a command that runs a program in the root file system that
// scripts/languages.sh creates, with a /proc of its own. It skips the test if there is none.
func Real(t testing.TB, program ...string) []string {
	t.Helper()
	root := root(t)
	const script = `mount -t proc proc "$0/proc" && exec chroot "$0" "$@"`
	return append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script, root}, program...)
}

func root(t testing.TB) string {
	t.Helper()
	tooltest.Root(t)
	path, err := exec.Command("../../scripts/languages.sh", "--path").Output()
	root := strings.TrimSpace(string(path))
	if _, statErr := os.Stat(root); err != nil || statErr != nil {
		t.Skipf("no real runtimes: %v, %v (scripts/languages.sh installs them)", err, statErr)
	}
	return root
}

// Java compiles a class and returns a command that runs it with OpenJDK 17, like Real.
func Java(t testing.TB, class, source string, options ...string) []string {
	t.Helper()
	root := root(t)
	host, err := os.MkdirTemp(filepath.Join(root, "tmp"), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(host) })
	if err := os.WriteFile(filepath.Join(host, class+".java"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimPrefix(host, root)
	compile := Real(t, "javac", "-d", dir, filepath.Join(dir, class+".java"))
	if out, err := exec.Command(compile[0], compile[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v: %s", compile, err, out)
	}
	return append(append(Real(t, "java"), options...), "-cp", dir, class)
}

// Run runs the tool for a program, which prints a line when it is ready, waits for a line, and then does
// what is to be observed. It returns the result, and the lines that the program prints then.
func Run(t testing.TB, tl *tool.Tool, args []string, name string, arg ...string) (*tooltest.Result, []string) {
	t.Helper()
	pid, finish := Start(t, name, arg...)
	var lines []string
	res := tooltest.JSON(t, tl, append(slices.Clone(args), "--pid", strconv.Itoa(pid)), func() { lines = finish() })
	return res, lines
}

// Start starts a program and waits until it has printed a line. finish writes a line to it, waits until it
// ends, and returns the lines that it has printed.
func Start(t testing.TB, name string, arg ...string) (pid int, finish func() []string) {
	t.Helper()
	cmd := exec.Command(name, arg...)
	cmd.Env = append(os.Environ(), "USE_ZEND_DTRACE=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	out := bufio.NewScanner(stdout)
	if !out.Scan() {
		t.Fatalf("%s has printed nothing: %v", cmd, out.Err())
	}
	return cmd.Process.Pid, func() (lines []string) {
		if _, err := stdin.Write([]byte{'\n'}); err != nil {
			t.Error(err)
		}
		for out.Scan() {
			lines = append(lines, out.Text())
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", cmd, err)
		}
		return lines
	}
}
