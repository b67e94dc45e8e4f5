package tooltest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Alone lets no other live test of this machine run during the test. It is for tests that
// observe or change something that all processes share, and says what that is; all other live
// tests run beside each other, also those of other packages. Call it first in a test.
func Alone(t testing.TB, why string) {
	t.Helper()
	Root(t)
	t.Logf("runs alone: %s", why)
	machine.exclude(t)
}

// lockName is a file in the temporary directory. Live tests hold it by flock(2): shared, or
// exclusively for Alone. A test that waits for the exclusive lock holds lockName + ".next"
// meanwhile, so that others that begin later do not delay it for ever.
const lockName = "corescope-live-tests"

// maxWait is how long a test waits for others that run alone; after that it runs beside them.
const maxWait = 5 * time.Minute

// liveLock is this process's share in the lock of live tests.
type liveLock struct {
	mu    sync.Mutex
	users int // tests of this process that hold it
	file  *os.File
}

var machine liveLock

// share holds the lock until the test ends. A test may call it any number of times.
func (l *liveLock) share(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 {
		l.file = acquire(t, unix.LOCK_SH)
	}
	t.Cleanup(l.release)
}

func (l *liveLock) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users == 0 && l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

// exclude makes the shared lock that the test holds exclusive, until the test ends.
func (l *liveLock) exclude(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close() // or two tests would wait for each other
	}
	l.file = acquire(t, unix.LOCK_EX)
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.file != nil {
			_ = unix.Flock(int(l.file.Fd()), unix.LOCK_SH) // for a parent test that goes on
		}
	})
}

// acquire returns the locked file, or nil where it cannot be locked.
func acquire(t testing.TB, how int) *os.File {
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
	if flock(next, unix.LOCK_EX, end) && flock(file, how, end) {
		return file
	}
	t.Logf("other live tests have held %s for %v: this one does not wait for them any longer", path, maxWait)
	file.Close()
	return nil
}

// flock tries until that time.
func flock(f *os.File, how int, end time.Time) bool {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if err == nil {
			return true
		}
		if err != unix.EWOULDBLOCK && err != unix.EINTR || time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
}
