package deadlock

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// program runs the scenario of its argument when it has read a byte. A capital letter in a list of
// steps locks a mutex, a small one releases it.
const program = `
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutexes[26];
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;

__attribute__((noinline)) static void first(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	asm volatile("");
}

__attribute__((noinline)) static void second(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	asm volatile("");
}

static void *steps(void *arg)
{
	struct timespec past = { 0 };
	int locks = 0;

	for (const char *s = arg; *s; s++) {
		switch (*s) {
		case '?':
			pthread_mutex_trylock(&mutexes[*++s - 'A']);
			break;
		case '@':
			pthread_mutex_timedlock(&mutexes[*++s - 'A'], &past);
			break;
		case '*':
			pthread_cond_timedwait(&cond, &mutexes[*++s - 'A'], &past);
			break;
		case '|':
			pthread_barrier_wait(&barrier);
			break;
		case '!':
			s++;
			pthread_mutex_destroy(&mutexes[*s - 'A']);
			pthread_mutex_init(&mutexes[*s - 'A'], NULL);
			break;
		default:
			if (*s >= 'a')
				pthread_mutex_unlock(&mutexes[*s - 'a']);
			else if (locks++)
				second(&mutexes[*s - 'A']);
			else
				first(&mutexes[*s - 'A']);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t recursive;
	char byte;

	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&mutexes['R' - 'A'], &recursive);
	pthread_barrier_init(&barrier, NULL, 2);
	printf("%p\n", (void *)mutexes);
	fflush(stdout);
	read(0, &byte, 1);
	pthread_t threads[16];
	for (int i = 1; i < argc; i++) {
		pthread_create(&threads[i], NULL, steps, argv[i]);
		if (!strchr(argv[i], '|'))
			pthread_join(threads[i], NULL);
	}
	read(0, &byte, 1);
	_exit(0);
}
`

// run runs the program with these steps of threads, one after the other, until done returns.
func run(t *testing.T, path string, done func(pid int), threads []string, args ...string) (res *tooltest.Result, mutex func(letter rune) string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), path, threads...)
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
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var base uint64
	fmt.Sscan(line, &base)
	res = tooltest.JSON(t, Tool, append([]string{fmt.Sprint(cmd.Process.Pid)}, args...), func() {
		in.Write([]byte{1})
		if done != nil {
			done(cmd.Process.Pid)
		}
		in.Write([]byte{1})
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	const size = 40 // of pthread_mutex_t
	mutexSize := uint64(size)
	if unix.SYS_FUTEX == 98 {
		mutexSize = 48 // arm64
	}
	return res, func(letter rune) string { return fmt.Sprintf("%#x", base+mutexSize*uint64(letter-'A')) }
}

// TestScenarios runs threads whose cycles are known.
func TestScenarios(t *testing.T) {
	tooltest.Root(t)
	path := tooltest.CompileC(t, program, "-O2", "-pthread", "-fno-omit-frame-pointer", "-fno-ipa-icf")
	for name, tt := range map[string]struct {
		threads []string
		cycle   string // mutexes of the only cycle
	}{
		"inversion":          {[]string{"ABba", "BAab"}, "AB"},
		"repeated":           {[]string{"ABba", "BAab", "ABba", "BAab"}, "AB"},
		"ordered":            {[]string{"ABba", "ABab", "BbAa"}, ""},
		"three":              {[]string{"ABba", "BCcb", "CAac"}, "ABC"},
		"single thread":      {[]string{"ABbaBAab"}, ""},
		"recursive":          {[]string{"RARrar", "RAar"}, ""},
		"recursive, held":    {[]string{"RRrAar", "ARra"}, "AR"},
		"gate":               {[]string{"GABbag", "GBAabg"}, ""},
		"gate in one thread": {[]string{"GABbag", "BAab"}, "AB"},
		"gate, then without": {[]string{"GABbag", "GBAabg", "ABba", "BAab"}, "AB"},
		"trylock":            {[]string{"A?Bba", "B?Aab"}, ""},
		"timedlock":          {[]string{"A@Bba", "B@Aab"}, ""},
		"lock in trylock":    {[]string{"?ABba", "?BAab"}, "AB"},
		"condition":          {[]string{"ABba", "AB*Aba"}, "AB"},
		"condition, ordered": {[]string{"ABba", "AB*Bba"}, ""},
		"destroyed":          {[]string{"ABba!A!B", "BAab"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			res, mutex := run(t, path, nil, tt.threads)
			check(t, res, tt.cycle, mutex)
		})
	}
}

// check compares the rows with those of the only cycle.
func check(t *testing.T, res *tooltest.Result, cycle string, mutex func(rune) string) {
	t.Helper()
	if len(res.Events) != 2*len(cycle) || tooltest.Lost(res.Summary) != 0 {
		t.Fatalf("rows %v, want a cycle of %q; summary %v", res.Events, cycle, res.Summary)
	}
	tids := map[float64]bool{}
	for i, letter := range cycle {
		next := rune(cycle[(i+1)%len(cycle)])
		acquires, holds := res.Events[2*i], res.Events[2*i+1]
		if acquires.Str("step") != "acquires" || acquires.Str("mutex") != mutex(next) || acquires.Str("holding") != mutex(letter) ||
			holds.Str("step") != "holds" || holds.Str("mutex") != mutex(letter) || acquires.Num("tid") != holds.Num("tid") ||
			acquires.Num("mutexes") != float64(len(cycle)) || acquires.Num("cycle") != 1 {
			t.Errorf("rows %v and %v, want that %c is acquired while %c is held", acquires, holds, next, letter)
		}
		for _, r := range []tooltest.Row{acquires, holds} {
			if stack := fmt.Sprint(r["user_stack"]); !strings.Contains(stack, "steps") {
				t.Errorf("stack %s, want one of the function steps", stack)
			}
		}
		tids[acquires.Num("tid")] = true
	}
	if len(tids) != len(cycle) {
		t.Errorf("%d threads for %d mutexes: %v", len(tids), len(cycle), res.Events)
	}
}

// TestStacks checks which function acquires each mutex.
func TestStacks(t *testing.T) {
	tooltest.Root(t)
	path := tooltest.CompileC(t, program, "-O2", "-pthread", "-fno-omit-frame-pointer", "-fno-ipa-icf")
	res, mutex := run(t, path, nil, []string{"ABba", "BAab"})
	check(t, res, "AB", mutex)
	for _, r := range res.Events {
		want := map[string]string{"acquires": "second", "holds": "first"}[r.Str("step")]
		if stack := fmt.Sprint(r["user_stack"]); !strings.Contains(stack, want) {
			t.Errorf("%s: stack %s, want the function %s", r.Str("step"), stack, want)
		}
	}
}

// TestDeadlocked reports a deadlock that has happened: both threads wait forever.
func TestDeadlocked(t *testing.T) {
	tooltest.Root(t)
	path := tooltest.CompileC(t, program, "-O2", "-pthread", "-fno-omit-frame-pointer", "-fno-ipa-icf")
	blocked := func(pid int) {
		for n := 0; n < 2 && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			n = 0
			files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
			for _, file := range files {
				if text, _ := os.ReadFile(file); strings.HasPrefix(string(text), fmt.Sprintf("%d 0x", unix.SYS_FUTEX)) {
					n++
				}
			}
		}
	}
	res, mutex := run(t, path, blocked, []string{"A|B", "B|A"})
	check(t, res, "AB", mutex)
}

// TestGraph compares the orders in the file with those of the program.
func TestGraph(t *testing.T) {
	tooltest.Root(t)
	path := tooltest.CompileC(t, program, "-O2", "-pthread", "-fno-omit-frame-pointer", "-fno-ipa-icf")
	file := filepath.Join(t.TempDir(), "graph.json")
	_, mutex := run(t, path, nil, []string{"GABbag"}, "--dump-graph", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var graph struct{ Orders []order }
	if err := json.Unmarshal(text, &graph); err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, o := range graph.Orders {
		got[o.Holding+" "+o.Mutex+" "+strings.Join(o.Gates, " ")] = true
	}
	a, b, g := mutex('A'), mutex('B'), mutex('G')
	for _, want := range []string{g + " " + a + " ", g + " " + b + " " + a, a + " " + b + " " + g} {
		if !got[want] {
			t.Errorf("orders %v, want %s", got, want)
		}
	}
	if len(got) != 3 {
		t.Errorf("orders %v, want three", got)
	}
}

// TestSymbols traces functions with other names.
func TestSymbols(t *testing.T) {
	lib := native.Open(t, "libmine.so", []string{"my_lock", "my_unlock", "pthread_mutex_lock"})
	args := []string{"--dump-graph", filepath.Join(t.TempDir(), "graph.json"), "--binary", lib.Path}
	text := func(more ...string) string {
		tooltest.JSON(t, Tool, append(append(more, args...), "--pid", fmt.Sprint(os.Getpid())), func() {
			runtime.LockOSThread() // one thread holds the mutexes
			defer runtime.UnlockOSThread()
			for _, call := range [][2]any{{"my_lock", 1}, {"pthread_mutex_lock", 9}, {"my_lock", 2}, {"my_unlock", 2}, {"my_unlock", 1}, {"my_lock", 3}} {
				lib.Call(call[0].(string), native.Call{Args: [7]uint64{uint64(call[1].(int))}, Ret: 77})
			}
		})
		b, _ := os.ReadFile(args[1])
		return string(b)
	}
	got := text("--lock-symbols", "my_lock", "--unlock-symbols", "my_unlock")
	if strings.Count(got, `"mutex": "0x2"`) != 1 || strings.Count(got, `"mutex"`) != 1 {
		t.Errorf("orders %s, want only that of 1 and 2", got)
	}
	tooltest.Fails(t, Tool, []string{"--lock-symbols", "my_lock"}, 2, "need each other")
	tooltest.Fails(t, Tool, []string{"--binary", "/no/such/file"}, 2, "/no/such/file")
}
