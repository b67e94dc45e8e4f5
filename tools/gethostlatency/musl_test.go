package gethostlatency

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// standIn is a library that can also be executed, as musl can: it then waits for a byte of standard
// input, or its end, looks up a name, and exits.
const standIn = `
#include <sys/syscall.h>

__attribute__((visibility("default"), noinline)) int getaddrinfo(const char *node, const char *service, const void *hints, void **res)
{
	*res = 0;
	return node[0] == 'x' ? 1 : -2; /* EAI_NONAME */
}

static void call(long nr, long a, void *b, long c)
{
#if defined(__x86_64__)
	__asm__ volatile("syscall" : "+a"(nr) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x2 __asm__("x2") = c;
	register void *x1 __asm__("x1") = b;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
#endif
}

__attribute__((used)) void run(void)
{
	static const char name[] = "short.test";
	void *result;
	char byte;

	call(SYS_read, 0, &byte, 1);
	getaddrinfo(name, 0, 0, &result);
	call(SYS_exit_group, 0, 0, 0);
	__builtin_trap();
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: and $-16, %rsp\n call run\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start: bl run\n");
#endif
`

// TestShortLivedMusl looks up a name as the first action of a process, in a musl that is installed
// but not mapped when the tool starts. The stand-in for musl is in a /usr/lib of the test.
func TestShortLivedMusl(t *testing.T) {
	if !tooltest.InNamespaces(t, 0) {
		return
	}
	compiled := compileStandIn(t)
	if err := unix.Mount("tmpfs", "/usr/lib", "tmpfs", 0, ""); err != nil {
		t.Fatalf("mount tmpfs at /usr/lib in the namespace of the test: %v", err)
	}
	const path = "/usr/lib/test-linux-musl/libc.so"
	install(t, path, compiled)
	const lookups = 5
	res := tooltest.JSON(t, Tool, nil, func() {
		for range lookups {
			if out, err := exec.Command(path).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}
	})
	rows := res.Where(func(r tooltest.Row) bool { return r.Str("host") == "short.test" })
	if len(rows) != lookups {
		t.Errorf("%d rows of %d lookups: %v; %s", len(rows), lookups, rows, res.Stderr)
	}
}

// compileStandIn returns the file of standIn.
func compileStandIn(t *testing.T) []byte {
	t.Helper()
	compiled, err := os.ReadFile(tooltest.CompileC(t, standIn, "-O1", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-Wl,-e,_start",
		"-nostdlib", "-fno-stack-protector", "-fno-builtin"))
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func install(t *testing.T, path string, program []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestRootOfProcess gives a path that exists only below the root directory of the process.
func TestRootOfProcess(t *testing.T) {
	tooltest.Root(t)
	const path = "/corescope-test/lookup.so"
	root := t.TempDir()
	install(t, root+path, compileStandIn(t))
	cmd := exec.Command(path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	pid := strconv.Itoa(cmd.Process.Pid)
	res := tooltest.JSON(t, Tool, []string{"--pid", pid, "--libc", path}, func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	if len(res.Events) != 1 || res.Events[0].Str("host") != "short.test" {
		t.Errorf("rows %v of one lookup; %s", res.Events, res.Stderr)
	}
	tooltest.Fails(t, Tool, []string{"--libc", path}, tool.ExitUsage, path)
	tooltest.Fails(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid()), "--libc", path}, tool.ExitUsage, path)
}
