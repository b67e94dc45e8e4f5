package gethostlatency

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// standIn is a library that can also be executed, as musl can: it then looks up a name and exits.
const standIn = `
__attribute__((visibility("default"), noinline)) int getaddrinfo(const char *node, const char *service, const void *hints, void **res)
{
	*res = 0;
	return node[0] == 'x' ? 1 : -2; /* EAI_NONAME */
}

__attribute__((used)) void run(void)
{
	static const char name[] = "short.test";
	void *result;

	getaddrinfo(name, 0, 0, &result);
#if defined(__x86_64__)
	__asm__ volatile("syscall" : : "a"(231L), "D"(0L) : "rcx", "r11", "memory"); /* exit_group */
#elif defined(__aarch64__)
	register long nr __asm__("x8") = 94, code __asm__("x0") = 0;

	__asm__ volatile("svc 0" : : "r"(nr), "r"(code) : "memory");
#endif
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
	compiled, err := os.ReadFile(tooltest.CompileC(t, standIn, "-O1", "-fPIC", "-shared", "-Wl,-Bsymbolic", "-Wl,-e,_start",
		"-nostdlib", "-fno-stack-protector", "-fno-builtin"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", "/usr/lib", "tmpfs", 0, ""); err != nil {
		t.Fatalf("mount tmpfs at /usr/lib in the namespace of the test: %v", err)
	}
	const path = "/usr/lib/test-linux-musl/libc.so"
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, compiled, 0o755); err != nil {
		t.Fatal(err)
	}
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
