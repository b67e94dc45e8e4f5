package tooltest

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// ThrowsRounds is the number of rounds of the program of CompileThrows. Every fourth round throws.
const ThrowsRounds = 40

// ThrowsReturned returns the number of calls of each function of the program that return.
func ThrowsReturned() map[string]uint64 {
	return map[string]uint64{"throws": 76, "passes": 66, "tail": 40, "several": 40, "naps": 2}
}

// ThrowsLeft returns the number of calls of each function that end by an exception or by the
// cancellation of the thread.
func ThrowsLeft() map[string]uint64 {
	return map[string]uint64{"throws": 12, "passes": 12, "waits": 1}
}

// ThrowsNap is the duration of each call of the function naps.
const ThrowsNap = 20 * time.Millisecond

const throwsSource = `
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define KEEP extern "C" __attribute__((noinline, noclone))

KEEP int throws(int n) { if (n % 4 == 0) throw n; return n; }
/* Does not catch the exception of its callee. */
KEEP int passes(int n) { return throws(n) + 1; }
/* Ends with a return instruction of passes (tail call), or with its own. */
KEEP int tail(int n) { asm volatile(""); if (n & 1) return passes(n); return n; }
KEEP int several(int n)
{
	if (n < 10)
		return throws(4 * n + 1) * 3;
	if (n < 20)
		return passes(4 * n + 2) * 2;
	return n;
}
KEEP int naps(int n)
{
	struct timespec left = {0, 20000000};
	while (nanosleep(&left, &left))
		;
	return n;
}
KEEP void waits(int *ready)
{
	__atomic_store_n(ready, 1, __ATOMIC_SEQ_CST);
	for (;;) {
		pause();
		asm volatile("" ::: "memory");
	}
}
/* An indirect tail call. */
int (*volatile pointer)(int) = passes;
KEEP int indirect(int n) { return pointer(n); }

static int destructed;
struct guard { ~guard() { destructed++; } };
static int ready;
static void *thread(void *) { guard g; waits(&ready); return 0; }

int main()
{
	int caught = 0;
	for (int i = 0; i < 40; i++) {
		try { passes(i); } catch (int) { caught++; }
		tail(i);
		several(i);
	}
	naps(1);
	naps(2);
	for (int i = 0; i < 8; i++)
		try { indirect(i); } catch (int) { caught++; }
	pthread_t t;
	pthread_create(&t, 0, thread, 0);
	while (!__atomic_load_n(&ready, __ATOMIC_SEQ_CST))
		usleep(1000);
	pthread_cancel(t);
	pthread_join(t, 0);
	printf("caught %d destructed %d\n", caught, destructed);
	return 0;
}
`

// CompileThrows compiles a C++ program in which exceptions, and the cancellation of a thread, end
// functions. It skips the test if no compiler is installed.
func CompileThrows(t testing.TB) string {
	t.Helper()
	return CompileCXX(t, throwsSource, "-O2", "-pthread")
}

// RunThrows runs the program and checks that the tool does not change its result.
func RunThrows(t testing.TB, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path).CombinedOutput()
	if want := fmt.Sprintf("caught %d destructed 1\n", ThrowsRounds/4+2); err != nil || !bytes.Equal(out, []byte(want)) {
		t.Errorf("run C++ program: %v: %q, want %q", err, out, want)
	}
}
