package futexctn

import (
	"bufio"
	"fmt"
	"os/exec"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// holding is a program whose first thread, named holder, holds a lock while another one waits for it. With
// "cond" the other one waits for a condition variable. It prints both thread IDs.
const holding = `
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifdef __cplusplus
#include <mutex>
static std::mutex standard;
#endif

static pthread_mutex_t mutex;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static const char *kind;
static volatile int waiter, signalled;

static int is(const char *name) { return !strcmp(kind, name); }

static void lock(int by_waiter)
{
#ifdef __cplusplus
	if (is("standard"))
		return standard.lock();
#endif
	if (is("write") || (is("read") && !by_waiter))
		pthread_rwlock_wrlock(&rwlock);
	else if (is("read") || (is("readers") && !by_waiter))
		pthread_rwlock_rdlock(&rwlock);
	else if (is("readers"))
		pthread_rwlock_wrlock(&rwlock);
	else
		pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
#ifdef __cplusplus
	if (is("standard"))
		return standard.unlock();
#endif
	if (is("write") || is("read") || is("readers"))
		pthread_rwlock_unlock(&rwlock);
	else
		pthread_mutex_unlock(&mutex);
}

static void *wait(void *arg)
{
	prctl(PR_SET_NAME, "waiter");
	waiter = syscall(SYS_gettid);
	lock(1);
	while (is("cond") && !signalled)
		pthread_cond_wait(&cond, &mutex);
	unlock();
	return arg;
}

static int blocks(int tid)
{
	char path[64], text[64] = "";
	long nr = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", tid);
	f = fopen(path, "r");
	if (f && fgets(text, sizeof(text), f))
		sscanf(text, "%ld", &nr);
	if (f)
		fclose(f);
	return nr == SYS_futex;
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t attr;
	pthread_t thread;

	kind = argv[1];
	prctl(PR_SET_NAME, "holder");
	pthread_mutexattr_init(&attr);
	if (is("pi"))
		pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	if (is("robust"))
		pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	if (is("checked"))
		pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&mutex, &attr);
	getchar();
	if (!is("cond"))
		lock(0);
	pthread_create(&thread, NULL, wait, NULL);
	while (!waiter || !blocks(waiter))
		usleep(1000);
	if (is("cond")) {
		pthread_mutex_lock(&mutex);
		signalled = 1;
		pthread_mutex_unlock(&mutex);
		pthread_cond_signal(&cond);
	} else {
		unlock();
	}
	pthread_join(thread, NULL);
	printf("%d %d\n", (int)getpid(), waiter);
	return 0;
}
`

// hold runs the program and returns the keys of the histograms of the thread that waits.
func hold(t *testing.T, program, kind string) (holder int, keys []tooltest.Row) {
	t.Helper()
	cmd := exec.Command(program, kind)
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
	var waiter int
	res := tooltest.JSON(t, Tool, []string{"--holder", "--pid", fmt.Sprint(cmd.Process.Pid)}, func() {
		fmt.Fprintln(in)
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		fmt.Sscan(line, &holder, &waiter)
	})
	for _, h := range res.Histograms {
		if key := h.Object("key"); int(key.Num("tid")) == waiter {
			keys = append(keys, key)
		}
	}
	return holder, keys
}

// TestHolder waits for locks whose holder is known, and for some whose holder is not.
func TestHolder(t *testing.T) {
	tooltest.Root(t)
	c := tooltest.CompileC(t, holding, "-pthread")
	cxx := ""
	for kind, isKnown := range map[string]bool{
		"mutex": true, "checked": true, "robust": true, "pi": true, "write": true, "read": true, "standard": true, "readers": false, "cond": false,
	} {
		t.Run(kind, func(t *testing.T) {
			program := c
			if kind == "standard" {
				if cxx == "" {
					cxx = tooltest.CompileCXX(t, holding, "-pthread")
				}
				program = cxx
			}
			holder, keys := hold(t, program, kind)
			known := 0
			for _, k := range keys {
				name, tid := k.Str("holder"), int(k.Num("holder_tid"))
				switch {
				case name == "holder" && tid == holder:
					known++
				case k["holder"] != nil || tid != 0:
					t.Errorf("key %v: want holder %d or none", k, holder)
				}
			}
			if len(keys) == 0 || isKnown != (known > 0) {
				t.Errorf("%d of %d keys name thread %d: %v", known, len(keys), holder, keys)
			}
		})
	}
}
