package system

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestPathByWalk(t *testing.T) {
	const c = "/sys/fs/cgroup/"
	root, now := machine(t, mountsV2, c+"a/b/c", c+"d"), newClock()
	cgroups := open(t, root)
	cgroups.now = now.now
	expect := func(id uint64, want string) {
		t.Helper()
		if got, ok := cgroups.Path(id); got != want || ok != (want != "") {
			t.Errorf("Path(%d) = %q, %v; want %q", id, got, ok, want)
		}
	}
	for dir, want := range map[string]string{"": "/", "a": "/a", "a/b/c": "/a/b/c", "d": "/d"} {
		expect(inode(t, root, c+dir), want)
	}

	add(t, root, c+"new/cgroup.procs", "")
	id := inode(t, root, c+"new")
	expect(id, "") // the last walk is less than missTTL ago
	now.add(missTTL)
	expect(id, "/new")
	check(t, os.RemoveAll(filepath.Join(root, c+"new")))
	now.add(time.Hour)
	expect(id, "/new")
}

// TestPathWalksOnceASecond looks up many unknown IDs and expects one walk per second.
func TestPathWalksOnceASecond(t *testing.T) {
	root, now := machine(t, mountsV2), newClock()
	cgroups := open(t, root)
	cgroups.now = now.now
	walks := func() (n int) {
		last := cgroups.lastWalk
		for i := range uint64(1000) {
			if _, ok := cgroups.Path(1<<60 + i%100); ok {
				t.Fatalf("found a cgroup for the unused ID %d", 1<<60+i%100)
			}
			if cgroups.lastWalk != last {
				last = cgroups.lastWalk
				n++
			}
		}
		return n
	}
	for i, want := range []int{1, 0} {
		if got := walks(); got != want {
			t.Errorf("round %d: %d walks, want %d", i, got, want)
		}
	}
	cgroups.lastWalk = time.Time{}
	if got := walks(); got != 0 {
		t.Errorf("%d walks for IDs that are cached as missing, want 0", got)
	}
	now.add(missTTL)
	if got := walks(); got != 1 {
		t.Errorf("a second later: %d walks, want 1", got)
	}
}

func TestMissesAreBounded(t *testing.T) {
	cgroups := open(t, machine(t, mountsV2))
	for i := range uint64(100_000) {
		cgroups.Path(1<<60 + i)
	}
	if n := len(cgroups.misses); n > 1<<14 {
		t.Errorf("%d misses cached, want at most %d", n, 1<<14)
	}
}

func TestSnapshot(t *testing.T) {
	const c = "/sys/fs/cgroup/"
	root := machine(t, mountsV2, c+"a/b")
	cgroups := open(t, root)
	check(t, cgroups.Snapshot())
	if len(cgroups.paths) != 3 {
		t.Errorf("snapshot %v, want 3 cgroups", cgroups.paths)
	}
	id := inode(t, root, c+"a/b")
	check(t, os.RemoveAll(filepath.Join(root, "sys")))
	if got, _ := cgroups.Path(id); got != "/a/b" {
		t.Errorf("after removal: %q, want /a/b", got)
	}
	if err := cgroups.Snapshot(); err == nil {
		t.Error("Snapshot of a removed hierarchy succeeds, want an error")
	}
}

func TestPathConcurrently(t *testing.T) {
	const c = "/sys/fs/cgroup/"
	root, n := machine(t, mountsV2), 20
	ids := make([]uint64, n)
	for i := range ids {
		dir := fmt.Sprintf("%sdocker/%064x", c, i)
		add(t, root, dir+"/cgroup.procs", "")
		ids[i] = inode(t, root, dir)
	}
	cgroups := open(t, root)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i, id := range ids {
				want := fmt.Sprintf("%064x", i)
				if got, _ := cgroups.Path(id); got != "/docker/"+want {
					t.Errorf("Path(%d) = %q, want /docker/%s", id, got, want)
				}
				if got := cgroups.Owner(id); got.ContainerID != want {
					t.Errorf("Owner(%d) = %+v, want container %s", id, got, want)
				}
			}
		})
	}
	group.Wait()
}
