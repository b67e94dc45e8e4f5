package tooltest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestTracefs checks in a mount namespace of its own that a live test mounts tracefs, and that it can
// be unmounted, but not if others have mounted it.
func TestTracefs(t *testing.T) {
	if !InNamespaces(t, 0) {
		return
	}
	check := func(after string, want bool) {
		t.Helper()
		if got, err := hasTracefs(); err != nil || got != want {
			t.Fatalf("after %s: tracefs is mounted: %v, %v, want %v", after, got, err, want)
		}
	}
	Tracefs(t) // skips the test if the kernel has no tracefs
	check("the start of a live test", true)
	for unix.Unmount(tracefs, unix.MNT_DETACH) == nil {
	}
	check("unmount", false)
	var lock liveLock
	t.Run("live", func(t *testing.T) {
		lock.share(t)
		check("the start of another live test", true)
	})
	unmountTracefs()
	check("the end of live tests", false)
	if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
		t.Fatal(err)
	}
	unmountTracefs()
	check("the end of live tests, with the tracefs of others", true)
}
