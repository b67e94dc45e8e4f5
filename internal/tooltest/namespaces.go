package tooltest

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespacesEnv has the name of the test that runs in namespaces of its own.
const inNamespacesEnv = "CORESCOPE_TEST_IN_NAMESPACES"

// IsInNamespaces reports whether this process was started by [InNamespaces].
func IsInNamespaces(t testing.TB) bool { return os.Getenv(inNamespacesEnv) == t.Name() }

// InNamespaces runs the test once more, by itself in a new process with a mount namespace of its own and,
// for CLONE_NEWPID, a PID namespace with its /proc. It reports whether this is that process; the
// other one has nothing left to do.
func InNamespaces(t *testing.T, flags uintptr) bool {
	t.Helper()
	Root(t)
	if IsInNamespaces(t) {
		if flags&unix.CLONE_NEWPID != 0 {
			if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
				t.Fatalf("mount /proc: %v", err)
			}
		}
		return true
	}
	args := []string{"-test.run", "^" + regexp.QuoteMeta(t.Name()) + "$", "-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), inNamespacesEnv+"="+t.Name())
	// Unshared by the new process itself, so that its mounts are made private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags &^ unix.CLONE_NEWNS, Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("in namespaces of its own: %v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP: ")):
		t.Skipf("in namespaces of its own:\n%s", out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Errorf("the test did not run in namespaces of its own:\n%s", out)
	}
	return false
}
