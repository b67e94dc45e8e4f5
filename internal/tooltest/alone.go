package tooltest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Alone prevents all other live tests on this machine, also those of other packages, from running
// during the test. Use it in tests that observe or change state shared by all processes; why names
// that state. Other live tests run in parallel. Call it at the start of a test.
func Alone(t testing.TB, why string) {
	t.Helper()
	Root(t)
	t.Logf("runs alone: %s", why)
	machine.exclude(t)
}

// lockName is a file in the temporary directory. Live tests lock it with flock(2): shared, or
// exclusively for Alone. While a test waits for the lock, it holds an exclusive lock on lockName +
// ".next", so that tests that start later cannot delay an exclusive lock indefinitely.
const lockName = "corescope-live-tests"

// maxWait is the time that a test waits for the lock. After it, the test runs without the lock.
const maxWait = 5 * time.Minute

// liveLock is this process's hold on the lock of live tests.
type liveLock struct {
	mu    sync.Mutex
	users int // number of tests in this process that hold it
	file  *os.File
	// tracefs is the error of mounting tracefs, which every live test does if it is not mounted.
	tracefs error
}

var machine liveLock

// share holds the shared lock until the test ends, and sees to it that tracefs is mounted. A test can
// call it several times.
func (l *liveLock) share(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 {
		l.file = acquire(t, unix.LOCK_SH)
		l.tracefs = mountTracefs()
	}
	t.Cleanup(l.release)
}

func (l *liveLock) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users == 0 && l.file != nil {
		if unix.Flock(int(l.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			// On another thread: that of this test can be in another mount namespace (NewMounts).
			done := make(chan struct{})
			go func() {
				defer close(done)
				unmountTracefs()
			}()
			<-done
		}
		l.file.Close()
		l.file = nil
	}
}

// tracefsError returns the error of mounting tracefs for the live tests that run.
func (l *liveLock) tracefsError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tracefs
}

// exclude replaces the shared lock of the test by an exclusive lock until the test ends.
func (l *liveLock) exclude(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close() // otherwise two tests could wait for each other's shared lock
	}
	l.file = acquire(t, unix.LOCK_EX)
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.file != nil {
			_ = unix.Flock(int(l.file.Fd()), unix.LOCK_SH) // for a parent test that continues
		}
	})
}

// acquire returns the locked file, or nil if it cannot be locked.
func acquire(t testing.TB, mode int) *os.File {
	t.Helper()
	path := filepath.Join(os.TempDir(), lockName)
	next, err := os.OpenFile(path+".next", os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Logf("lock live tests: %v", err)
		return nil
	}
	defer next.Close()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		t.Logf("lock live tests: %v", err)
		return nil
	}
	end := time.Now().Add(maxWait)
	if flock(next, unix.LOCK_EX, end) && flock(file, mode, end) {
		return file
	}
	t.Logf("lock live tests: %s is still locked after %v: continue without the lock", path, maxWait)
	file.Close()
	return nil
}

// flock tries to lock the file until end, and reports whether it succeeded.
func flock(f *os.File, mode int, end time.Time) bool {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), mode|unix.LOCK_NB)
		if err == nil {
			return true
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
}
