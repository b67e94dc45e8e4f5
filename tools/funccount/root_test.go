package funccount

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// rootEnv makes the test binary mount a file system in the directory with that path, in a private
// mount namespace, load the library "source" of the parent directory from there, and call it once
// per line of standard input.
const rootEnv = "CORESCOPE_OTHER_ROOT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(rootEnv); dir != "" {
		if err := callInside(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func callInside(dir string) error {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "source"))
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return err
	}
	lib := &native.Library{Path: filepath.Join(dir, "libinside.so.1")}
	if err := os.WriteFile(lib.Path, text, 0o755); err != nil {
		return err
	}
	// An absolute link, which is resolved relative to that root.
	if err := os.Symlink(lib.Path, filepath.Join(dir, "link.so")); err != nil {
		return err
	}
	if err := lib.Load("one", "two"); err != nil {
		return err
	}
	fmt.Println("mapped")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); fmt.Println("called") {
		for range 1001 {
			lib.Call("one", native.Call{})
		}
	}
	return nil
}

// TestOtherRoot counts calls of a process in another mount namespace, whose library has no path in
// the mount namespace of the tool.
func TestOtherRoot(t *testing.T) {
	tooltest.Root(t)
	dir := filepath.Join(t.TempDir(), "inside")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	native.Write(t, filepath.Join(filepath.Dir(dir), "source"), []string{"one", "two"})
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), rootEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != "mapped" {
		t.Fatalf("the other process has not loaded the library: %q", lines.Text())
	}
	pid := fmt.Sprint(cmd.Process.Pid)
	for _, args := range [][]string{
		{"-p", pid, "inside:one"}, {"-p", pid, dir + "/libinside.so.1:one"}, {"-p", pid, dir + "/link.so:one"},
		{"-p", pid, "inside:o*"}, {"inside:one"},
	} {
		res := tooltest.JSON(t, Tool, args, func() {
			fmt.Fprintln(in)
			lines.Scan()
		})
		if got := counted(res); got != "map[one:1001]" {
			t.Errorf("%q: counted %s, want 1001 calls: %s", args, got, res.Stderr)
		}
	}
	if errOut := usage(t, "-p", pid, "/no/such/library.so:one"); !strings.Contains(errOut, "in the root of process "+pid) {
		t.Errorf("error for a nonexistent path: %s", errOut)
	}
}
