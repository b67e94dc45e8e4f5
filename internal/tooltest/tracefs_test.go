package tooltest

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestTracefs checks in a mount namespace of its own that a test that needs tracefs mounts it, and that
// it can be unmounted, but not if others have mounted it.
func TestTracefs(t *testing.T) {
	if !InNamespaces(t, 0) {
		return
	}
	unmount := func() {
		for unix.Unmount(tracefs, unix.MNT_DETACH) == nil {
		}
	}
	unmount()
	if hasTracefs(t) {
		t.Fatal("tracefs is still mounted")
	}
	Tracefs(t)
	if !hasTracefs(t) {
		t.Error("tracefs is not mounted")
	}
	if unmountTracefs(); hasTracefs(t) {
		t.Error("tracefs of tests is still mounted")
	}
	if err := unix.Mount("tracefs", tracefs, "tracefs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if unmountTracefs(); !hasTracefs(t) {
		t.Error("the tracefs of others was unmounted")
	}
}
