package stackcount

import (
	"io"
	"os/exec"
	"slices"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// forkingProgram forks a child for each byte of standard input, up to its end. The child calls three
// functions and exits immediately. The program uses no library, and
// frame pointers because its unwind table may not exist yet.
const forkingProgram = `
#include <sys/syscall.h>

static __attribute__((always_inline)) inline long call(long nr, long a, long b, long c, long d)
{
#if defined(__x86_64__)
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = 0;

	__asm__ volatile("syscall" : "+a"(nr) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return nr;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c,
		      x3 __asm__("x3") = d, x4 __asm__("x4") = 0;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
#endif
}

/* The empty statements keep the calls from becoming jumps. */
__attribute__((noinline)) long child_inner(long code)
{
	__asm__ volatile("" : : "r"(__builtin_frame_address(0))); /* a leaf needs a reason for a frame */
	call(SYS_exit_group, code, 0, 0, 0);
	__asm__ volatile("");
	return code;
}

__attribute__((noinline)) long child_outer(long code)
{
	long result = child_inner(code);

	__asm__ volatile("");
	return result;
}

__attribute__((noinline, used)) void serve(void)
{
	char name[] = "cs-forked", byte;

	while (call(SYS_read, 0, (long)&byte, 1, 0) == 1) {
		long pid = call(SYS_clone, 17 /* SIGCHLD */, 0, 0, 0);

		if (pid == 0) {
			call(SYS_prctl, 15 /* PR_SET_NAME */, (long)name, 0, 0);
			child_outer(0);
		}
		call(SYS_wait4, pid, 0, 0, 0);
		call(SYS_write, 1, (long)&byte, 1, 0);
	}
	call(SYS_exit_group, 0, 0, 0, 0);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start: xor %ebp, %ebp\n call serve\n");
#elif defined(__aarch64__)
__asm__(".globl _start\n_start: mov x29, 0\n mov x30, 0\n bl serve\n");
#endif
`

// TestForkedBeforeExit checks stacks of children that exit immediately and run code of a file that
// only their parent had mapped, before the start. Each child has a file of its own, because the file
// is known once a stack has been read while its process lives. The child sets its name, so its only
// system call with that name is exit_group.
func TestForkedBeforeExit(t *testing.T) {
	tooltest.Root(t)
	const programs = 20
	var all []*forking
	for range programs {
		all = append(all, startForking(t))
	}
	res := tooltest.JSON(t, Tool, []string{"-U", "-P", "--comm", "cs-forked", "t:raw_syscalls:sys_enter"}, func() {
		for _, p := range all {
			p.fork(t)
		}
	})
	var count float64
	for _, r := range res.Rows {
		count += r.Num("count")
		if got := r.Symbols("user_stack"); !slices.Equal(got, []string{"child_inner", "child_outer", "serve", "_start"}) {
			t.Errorf("stack is %q: %v", got, r["user_stack"])
		}
	}
	if count != programs {
		t.Errorf("%.0f stacks of %d children", count, programs)
	}
}

// forking is a process of the forkingProgram.
type forking struct {
	in  io.Writer
	out io.Reader
}

func startForking(t *testing.T) *forking {
	t.Helper()
	cmd := exec.Command(tooltest.CompileC(t, forkingProgram, "-O1", "-fno-omit-frame-pointer",
		"-fno-stack-protector", "-fno-builtin", "-nostdlib", "-static", "-no-pie"))
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
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &forking{in, out}
}

// fork makes the process fork a child, and waits until the child has exited.
func (f *forking) fork(t *testing.T) {
	t.Helper()
	b := []byte{'\n'}
	if _, err := f.in.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(f.out, b); err != nil {
		t.Fatal(err)
	}
}
