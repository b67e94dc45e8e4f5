package system

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// live opens the cgroups of this machine, makes a hierarchy the Default, and creates a cgroup with
// a child in it.
func live(t *testing.T, pick func(*Cgroups) *hierarchy) (c *Cgroups, name, dir string) {
	t.Helper()
	if uid := os.Geteuid(); uid != 0 {
		t.Skipf("creating a cgroup needs root, not UID %d", uid)
	}
	needCgroups(t)
	c, err := OpenCgroups("/")
	check(t, err)
	if c.main = pick(c); c.main == nil {
		t.Skip("this hierarchy is not mounted")
	}
	name = fmt.Sprintf("corescope-test-%d", os.Getpid())
	dir = filepath.Join(c.main.dir, name)
	if err := os.Mkdir(dir, 0o755); errors.Is(err, unix.EROFS) {
		t.Skip(err)
	} else {
		check(t, err)
	}
	t.Cleanup(func() { os.Remove(filepath.Join(dir, "child")); os.Remove(dir) })
	check(t, os.Mkdir(filepath.Join(dir, "child"), 0o755))
	return c, path.Join(c.main.base, name), dir
}

var liveHierarchies = map[string]func(*Cgroups) *hierarchy{
	"default": func(c *Cgroups) *hierarchy { return c.main },
	"v2":      func(c *Cgroups) *hierarchy { return c.v2 },
}

func TestLivePath(t *testing.T) {
	for which, pick := range liveHierarchies {
		t.Run(which, func(t *testing.T) {
			byHandle, name, dir := live(t, pick)
			if byHandle.main.handle == 0 {
				t.Fatalf("%s has no file handles", byHandle.main.dir)
			}
			byWalk, _ := OpenCgroups("/")
			walked := *byHandle.main
			walked.handle = 0
			byWalk.main = &walked
			target, err := byHandle.Lookup(filepath.Join(dir, "child"))
			check(t, err)
			if id, err := handleID(filepath.Join(dir, "child")); id != target.ID {
				t.Errorf("ID %d from the file handle, %v; %d from the inode", id, err, target.ID)
			}
			expect := func(method string, c *Cgroups, want string) {
				t.Helper()
				if got, ok := c.Path(target.ID); got != want || ok != (want != "") {
					t.Errorf("%s: %q, %v; want %q", method, got, ok, want)
				}
			}
			expect("by handle", byHandle, name+"/child")
			expect("by walk", byWalk, name+"/child")
			if !byHandle.lastWalk.IsZero() {
				t.Error("walked the hierarchy for a cgroup that can be opened by handle")
			}

			check(t, os.Remove(filepath.Join(dir, "child")))
			expect("by handle, removed", byHandle, name+"/child")
			expect("by walk, removed", byWalk, name+"/child")
			fresh, _ := OpenCgroups("/")
			fresh.main = byHandle.main
			expect("by handle, first lookup after removal", fresh, "")
			if !fresh.lastWalk.IsZero() {
				t.Error("walked the hierarchy for a removed cgroup, although its handle is stale")
			}
		})
	}
}

func TestLiveSnapshot(t *testing.T) {
	c, name, dir := live(t, func(c *Cgroups) *hierarchy { return c.main })
	target, err := c.Lookup(dir)
	check(t, err)
	if target.Path != name || target.Controller != c.Default() {
		t.Errorf("Lookup(%q) = %+v; want %s in %q", dir, target, name, c.Default())
	}
	check(t, c.Snapshot())
	check(t, os.Remove(filepath.Join(dir, "child")))
	check(t, os.Remove(dir))
	if got, _ := c.Path(target.ID); got != name {
		t.Errorf("after removal: %q, want %q", got, name)
	}
}

// TestLiveDeleted removes a cgroup during the lookup of its path, which must not end in "
// (deleted)".
func TestLiveDeleted(t *testing.T) {
	c, name, dir := live(t, func(c *Cgroups) *hierarchy { return c.main })
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	check(t, err)
	defer unix.Close(fd)
	check(t, os.Remove(filepath.Join(dir, "child")))
	check(t, os.Remove(dir))
	if got, err := c.main.pathOf(fd); got != name {
		t.Errorf("got %q, %v; want %q", got, err, name)
	}
}

// TestLiveOutsideSubtree looks up a cgroup outside the mounted subtree. The kernel reports its path
// as "/".
func TestLiveOutsideSubtree(t *testing.T) {
	c, name, dir := live(t, func(c *Cgroups) *hierarchy { return c.main })
	part := hierarchy{dir: t.TempDir(), base: name + "/child", handle: c.main.handle}
	if err := unix.Mount(filepath.Join(dir, "child"), part.dir, "", unix.MS_BIND, ""); errors.Is(err, unix.EPERM) {
		t.Skipf("cannot mount: %v", err)
	} else {
		check(t, err)
	}
	defer unix.Unmount(part.dir, unix.MNT_DETACH)
	for cgroup, want := range map[string]string{"child": name + "/child", "": ""} {
		info, err := c.main.stat(filepath.Join(dir, cgroup))
		check(t, err)
		if got, err := part.byHandle(info.id); got != want || errors.Is(err, errGone) != (want == "") {
			t.Errorf("%q: got %q, %v; want %q", cgroup, got, err, want)
		}
	}
}

// TestLiveWalkOneDevice expects that the walk of a hierarchy does not enter a file system that is
// mounted in it.
func TestLiveWalkOneDevice(t *testing.T) {
	c, name, dir := live(t, func(c *Cgroups) *hierarchy { return c.main })
	child := filepath.Join(dir, "child")
	if err := unix.Mount("none", child, "tmpfs", 0, ""); errors.Is(err, unix.EPERM) {
		t.Skipf("cannot mount: %v", err)
	} else {
		check(t, err)
	}
	defer unix.Unmount(child, unix.MNT_DETACH)
	check(t, os.MkdirAll(filepath.Join(child, "alien"), 0o755))
	var seen []string
	check(t, c.main.walk(func(cgroup string, _ uint64) {
		if strings.HasPrefix(cgroup, name) {
			seen = append(seen, cgroup)
		}
	}))
	if !slices.Equal(seen, []string{name}) {
		t.Errorf("walked %q, want only %q", seen, name)
	}
}

// TestLiveWithoutCapability expects a walk without the capability for opening cgroups by handle.
func TestLiveWithoutCapability(t *testing.T) {
	c, name, dir := live(t, func(c *Cgroups) *hierarchy { return c.main })
	info, err := c.main.stat(dir)
	check(t, err)
	id := info.id
	defer without(t, unix.CAP_DAC_READ_SEARCH)()
	if _, err := c.main.byHandle(id); !errors.Is(err, errNoHandles) {
		t.Errorf("byHandle without the capability: %v, want errNoHandles", err)
	}
	if got, _ := c.Path(id); got != name || c.lastWalk.IsZero() {
		t.Errorf("Path(%d) = %q, last walk %v; want %q by a walk", id, got, c.lastWalk, name)
	}
}

// without drops a capability of this thread until restore is called.
func without(t *testing.T, capability int) (restore func()) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	check(t, unix.Capget(&header, &data[0]))
	all := data
	data[capability/32].Effective &^= 1 << (capability % 32)
	check(t, unix.Capset(&header, &data[0]))
	return func() {
		check(t, unix.Capset(&header, &all[0]))
		runtime.UnlockOSThread()
	}
}

func TestLiveNamedHierarchy(t *testing.T) {
	needCgroups(t)
	c, err := OpenCgroups("/")
	check(t, err)
	for _, h := range c.hierarchies {
		if h.visible() {
			continue
		}
		if _, err := c.Lookup(h.dir); !errors.Is(err, ErrNamedHierarchy) {
			t.Errorf("Lookup(%q): %v, want ErrNamedHierarchy", h.dir, err)
		}
		return
	}
	t.Skip("no named v1 hierarchy is mounted")
}

func BenchmarkPath(b *testing.B) {
	c, err := OpenCgroups("/")
	if err != nil {
		b.Skip(err)
	}
	top, _ := c.main.stat(c.main.dir)
	root := top.id
	b.Run("cached", func(b *testing.B) {
		for b.Loop() {
			c.Path(root)
		}
	})
	b.Run("missing", func(b *testing.B) {
		for b.Loop() {
			c.Path(1 << 60)
		}
	})
	b.Run("handle", func(b *testing.B) {
		for b.Loop() {
			if _, err := c.main.byHandle(root); err != nil {
				b.Skip(err)
			}
		}
	})
	b.Run("owner", func(b *testing.B) {
		for b.Loop() {
			c.Owner(root)
		}
	})
}

// TestPathOfFile looks up the inode of a file in a cgroup, which is not the ID of a cgroup.
func TestPathOfFile(t *testing.T) {
	needCgroups(t)
	c, err := OpenCgroups("/")
	check(t, err)
	var st unix.Stat_t
	if err := unix.Stat(c.main.dir+"/cgroup.procs", &st); err != nil {
		t.Skip(err)
	}
	if path, ok := c.Path(st.Ino); ok {
		t.Errorf("Path of the inode of cgroup.procs = %q, want none", path)
	}
}

// needCgroups skips the test if no cgroup hierarchy is mounted.
func needCgroups(t testing.TB) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mounts), " cgroup2 ") && !strings.Contains(string(mounts), " cgroup ") {
		t.Skip("no cgroup hierarchy is mounted")
	}
}
