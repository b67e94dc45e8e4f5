package system

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRemovedCgroupsAreForgotten creates and removes many cgroups, and expects the cache to forget them
// after some minutes, not before, and to keep those that exist.
func TestRemovedCgroupsAreForgotten(t *testing.T) {
	const c, many = "/sys/fs/cgroup/", 100
	root, now := machine(t, mountsV2, c+"stays"), newClock()
	cgroups := open(t, root)
	cgroups.now = now.now
	var planned []func()
	cgroups.after = func(d time.Duration, f func()) {
		if d != sweepEvery {
			t.Errorf("planned after %s, want %s", d, sweepEvery)
		}
		planned = append(planned, f)
	}
	stays := inode(t, root, c+"stays")
	var ids []uint64
	for i := range many {
		dir := fmt.Sprint(c, "x", i)
		add(t, root, dir+"/cgroup.procs", "")
		ids = append(ids, inode(t, root, dir))
	}
	check(t, cgroups.Snapshot())
	for _, id := range append(ids, stays) {
		cgroups.Owner(id)
	}
	for i := range many {
		check(t, os.RemoveAll(filepath.Join(root, fmt.Sprint(c, "x", i))))
	}
	for len(planned) > 0 {
		if len(planned) > 1 {
			t.Fatalf("%d sweeps are planned at the same time", len(planned))
		}
		f := planned[0]
		planned = nil
		now.add(sweepEvery)
		known := len(cgroups.paths)
		if f(); len(cgroups.paths) < known && now.now().Sub(time.Unix(1e9, 0)) < goneTTL {
			t.Fatalf("forgot cgroups %s after they were removed", now.now().Sub(time.Unix(1e9, 0)))
		}
	}
	if got, want := len(cgroups.paths), 2; got != want { // the root and stays
		t.Errorf("%d paths are cached, want %d", got, want)
	}
	if got, want := len(cgroups.owners), 1; got != want {
		t.Errorf("%d owners are cached, want %d", got, want)
	}
	if path, ok := cgroups.Path(stays); !ok || path != "/stays" {
		t.Errorf("the path of an existing cgroup is %q, %v", path, ok)
	}
}
