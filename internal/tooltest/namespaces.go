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

// inNamespacesEnv contains the name of the test that runs in its own namespaces.
const inNamespacesEnv = "CORESCOPE_TEST_IN_NAMESPACES"

// IsInNamespaces reports whether this process was started by [InNamespaces].
func IsInNamespaces(t testing.TB) bool { return os.Getenv(inNamespacesEnv) == t.Name() }

// InNamespaces runs only this test again, in a new process with its own mount namespace and, with
// CLONE_NEWPID, its own PID namespace and /proc. It returns true in the new process. If it returns
// false, the test has finished and must return.
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
	// Unshareflags instead of Cloneflags, because os/exec then makes the mounts private.
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags &^ unix.CLONE_NEWNS, Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("run the test in new namespaces: %v\n%s", err, out)
	case bytes.Contains(out, []byte("--- SKIP: ")):
		t.Skipf("skipped in new namespaces:\n%s", out)
	case !bytes.Contains(out, []byte("--- PASS: "+t.Name())):
		t.Errorf("the test did not run in new namespaces:\n%s", out)
	}
	return false
}

// InOtherProc is InNamespaces with a /proc of a PID namespace that does not contain the new process.
func InOtherProc(t *testing.T) bool {
	t.Helper()
	if !InNamespaces(t, 0) {
		return false
	}
	// The process in the new PID namespace shares the mount namespace.
	cmd := exec.CommandContext(t.Context(), "mount", "-t", "proc", "proc", "/proc")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mount /proc of another PID namespace: %v: %s", err, out)
	}
	return true
}
