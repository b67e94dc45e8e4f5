package tooltest

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"testing"
)

// LockProcess is a process of LockHolder. PID is also the ID of the thread that holds the lock. WaiterTID is
// known after Run.
type LockProcess struct {
	PID, WaiterTID int

	t   testing.TB
	in  io.Writer
	out *bufio.Reader
}

// StartLockHolder starts the compiled program LockHolder with a kind of lock. It does nothing until Run.
func StartLockHolder(t testing.TB, program, kind string) *LockProcess {
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
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	return &LockProcess{PID: cmd.Process.Pid, t: t, in: in, out: bufio.NewReader(out)}
}

// Run has one thread wait for the lock of the other one, and returns when it has acquired it.
func (p *LockProcess) Run() {
	p.t.Helper()
	fmt.Fprintln(p.in)
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("read from the program that holds a lock: %v", err)
	}
	var pid int
	fmt.Sscan(line, &pid, &p.WaiterTID)
}

// HolderFunction is the function of LockHolder that holds the lock.
const HolderFunction = "hold_and_release"

// LockHolder is a C and C++ program whose first thread, named holder, holds a lock while another one waits
// for it. It acquires and releases the lock in the function HolderFunction. Its argument is the kind of
// the lock: mutex, checked, robust, pi, write (two writers), read (a reader waits for a writer), readers (a
// writer waits for a reader), standard (C++), passed (a mutex; a third thread waits first and passes it on),
// signal (a mutex; the first thread interrupts the wait by a signal), or cond: the other thread waits for a
// condition variable. It starts when it reads a line, and then prints both thread IDs.
const LockHolder = `
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
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
static volatile int waiter, signalled, interrupted;

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

static void await_waiter(void)
{
	while (!waiter || !blocks(waiter))
		usleep(1000);
}

static void interrupt(int signal) { interrupted = signal; }

#ifdef __cplusplus
extern "C"
#endif
__attribute__((noinline)) void hold_and_release(pthread_t *thread)
{
	pthread_t first;

	if (!is("cond"))
		lock(0);
	if (is("passed")) {
		pthread_create(&first, NULL, wait, NULL);
		await_waiter();
		waiter = 0;
	}
	pthread_create(thread, NULL, wait, NULL);
	await_waiter();
	if (is("signal")) {
		signal(SIGUSR1, interrupt);
		pthread_kill(*thread, SIGUSR1);
		while (!interrupted)
			usleep(1000);
		await_waiter();
	}
	if (is("cond")) {
		pthread_mutex_lock(&mutex);
		signalled = 1;
		pthread_mutex_unlock(&mutex);
		pthread_cond_signal(&cond);
	} else {
		unlock();
	}
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
	hold_and_release(&thread);
	pthread_join(thread, NULL);
	printf("%d %d\n", (int)getpid(), waiter);
	return 0;
}
`
