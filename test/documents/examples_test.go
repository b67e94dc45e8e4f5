package documents

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/tools"
)

// machine has what the commands of the documentation name: a process, a container, a cgroup, a terminal, a
// disk and a network interface, which replace those of the documentation.
type machine struct {
	pid                                        int
	program, container, cgroup, terminal, disk string
}

// newMachine creates what the commands name. The commands run in an empty directory, which has the
// program ./server.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{container: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", terminal: terminal(t)}
	// One process is in the container, in each hierarchy in which tools may look for it.
	m.program = lookPath(t, "sleep")
	cmd := exec.Command(m.program, "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after it, the cgroups are removed
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	m.pid = cmd.Process.Pid
	m.cgroup = m.join(t, "cgroup2")
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for _, controller := range []string{"memory", "cpu"} {
		if regexp.MustCompile(`(?m)^\S+ \S+ cgroup ([^ ]*,)?` + controller + `[, ]`).Match(mounts) {
			m.join(t, controller)
		}
	}
	disks, err := os.ReadDir("/sys/block")
	if err != nil || len(disks) == 0 {
		t.Skipf("/sys/block lists no disk (%v)", err)
	}
	m.disk = disks[0].Name()
	t.Chdir(t.TempDir())
	if err := os.Symlink(lookPath(t, "true"), "server"); err != nil {
		t.Fatal(err)
	}
	return m
}

// join creates the cgroup of the container, and moves the process there until the test ends.
func (m *machine) join(t *testing.T, hierarchy string) (dir string) {
	t.Helper()
	dir = tooltest.Cgroup(t, hierarchy, "docker/"+m.container)
	if err := os.WriteFile(dir+"/cgroup.procs", []byte(strconv.Itoa(m.pid)), 0); err != nil {
		t.Fatal(err)
	}
	return dir
}

// lookPath returns the path of a program, without symbolic links.
func lookPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// terminal opens a new terminal for the test and returns its number below /dev/pts.
func terminal(t *testing.T) string {
	t.Helper()
	master, _ := tooltest.PTY(t)
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(number)
}

// adapt replaces what the arguments name.
func (m *machine) adapt(tl *tool.Tool, args []string) []string {
	pids := []string{"1234", "5678", "480", "181", "189", "18644", "PID"}
	cgroups := []string{"/test", "/system.slice/db.service", "/sys/fs/cgroup/system.slice/app.service", "/sys/fs/cgroup/mycg"}
	args = slices.Clone(args)
	for i, arg := range args {
		switch {
		case slices.Contains(pids, arg):
			args[i] = strconv.Itoa(m.pid)
		case slices.Contains(cgroups, arg):
			args[i] = m.cgroup
		case arg == "web" || arg == "shop":
			args[i] = m.container
		case arg == "eth0":
			args[i] = "lo"
		case tl.Name == "ttysnoop" && arg == "2":
			args[i] = m.terminal
		case tl.Name == "softirqslower" && arg == "2": // a CPU
			args[i] = "0"
		default:
			args[i] = regexp.MustCompile(`^(/dev/)?(nvme0n1|vda)$`).ReplaceAllString(arg, "${1}"+m.disk)
		}
	}
	if tl.Name == "resettrace" { // it would reset what other programs use
		args = append(args, "--dry-run")
	}
	return args
}

// lacks returns why a command fails on this machine: what its message names does not exist here, or the process
// is not of the kind that the tool observes. It is empty if there is no such reason.
func (m *machine) lacks(t *testing.T, tl *tool.Tool, args []string, message string) string {
	t.Helper()
	for _, arg := range args {
		if found, err := filepath.Glob(arg); strings.Contains(arg, "*") && len(found) == 0 && err == nil && strings.Contains(message, arg) {
			return "no file matches " + arg
		}
	}
	for _, word := range regexp.MustCompile(`[A-Za-z0-9_./-]+`).FindAllString(strings.Join(args, " "), -1) {
		if _, err := os.Stat(word); strings.HasPrefix(word, "/") && strings.Contains(message, word) && err != nil {
			return err.Error()
		}
		if regexp.MustCompile(`(function|--lock:) `+regexp.QuoteMeta(word)+`\b`).MatchString(message) && !hasSymbol(t, word) {
			return "the kernel has no symbol " + word
		}
	}
	switch {
	case strings.Contains(message, "waiting for a file to attach to: "+m.program+": none of") || strings.Contains(message, "waiting for a file to attach to: "+m.program+": USDT probe"):
		return "the process is sleep(1), which has none of the functions and probes"
	case tl.Name == "kvmexit" && strings.Contains(message, strconv.Itoa(m.pid)):
		return "the process is sleep(1), which is no virtual machine"
	case tl.Name == "seccompprofile" && strings.Contains(message, "no system call was observed"):
		return "the test ended the command before there was a system call"
	}
	return ""
}

// hasSymbol reports whether the kernel has a function or variable of this name.
func hasSymbol(t *testing.T, name string) bool {
	t.Helper()
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Contains(symbols, []byte(" "+name+"\n")) || bytes.Contains(symbols, []byte(" "+name+"\t"))
}

// execute runs a command line of the documentation until it is ready. It skips the test if this kernel
// does not support the tool, or if what the command names does not exist here.
func (m *machine) execute(t *testing.T, command string) {
	t.Helper()
	tl, args := find(command, m.pid)
	if tl == nil {
		t.Fatalf("there is no tool for %s", command)
	}
	args = m.adapt(tl, args)
	code, message := untilReady(t, tl, args)
	if code == tool.ExitOK {
		return
	}
	if reason := m.lacks(t, tl, args, message); reason != "" {
		t.Skipf("%s: %s", reason, message)
	}
	if code == tool.ExitUnsupported {
		// The kernel lacks a hook. --explain must say so too.
		if explained, text := untilReady(t, tl, append([]string{"--explain"}, args...)); explained == tool.ExitUnsupported || strings.Contains(text, "not supported") || strings.Contains(text, "not permitted") {
			t.Skipf("not supported by this kernel: %s", message)
		}
	}
	t.Errorf("%s %q: exit code %d: %s", tl.Name, args, code, message)
}

// TestExamples runs the examples of all manual pages. Those of the cheat sheet and of the tldr pages are
// among them (TestCheatSheet and TestTldr in tools).
func TestExamples(t *testing.T) {
	tooltest.Root(t)
	tooltest.AnyAttachType(t)
	m := newMachine(t)
	n := 0
	for _, tl := range tools.All() {
		n += len(tl.Examples)
		t.Run(tl.Name, func(t *testing.T) {
			for _, example := range tl.Examples {
				t.Run(strings.TrimSpace(strings.Split(example, "# ")[0]), func(t *testing.T) { m.execute(t, example) })
			}
		})
	}
	if n < 400 {
		t.Errorf("there are only %d examples", n)
	}
}

// pages returns the Markdown files of the site, without those that are tables of results, and the change log,
// which names flags and no whole commands.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*.md", "packaging/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		names = append(names, found...)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.Contains([]string{"truth.md", "compatibility.md", "cheatsheet.md", "CHANGELOG.md"}, filepath.Base(name))
	})
}

// TestPages runs the commands of tools in all pages except those about symptoms (TestSymptoms).
func TestPages(t *testing.T) {
	tooltest.Root(t)
	tooltest.AnyAttachType(t)
	n, commands := 0, map[string][]string{}
	names := pages(t)
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		commands[name] = slices.DeleteFunc(inline(string(text)), func(c string) bool {
			return c == "argdist -C" || c == "argdist -H" // prose about these flags
		})
		n += len(commands[name])
	}
	m := newMachine(t)
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			for _, command := range commands[name] {
				t.Run(command, func(t *testing.T) { m.execute(t, command) })
			}
		})
	}
	if n < 30 {
		t.Errorf("the pages have only %d commands of tools", n)
	}
}
