package system

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Lines of mountinfo for cgroup v2 only, for v1 only, and for the additional v2 mount in systemd's
// hybrid mode.
const (
	mountsV2 = `25 30 0:23 / /proc rw,nosuid - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`
	mountsV1 = `31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct
33 31 0:31 / /sys/fs/cgroup/memory rw shared:6 - cgroup cgroup rw,memory
34 31 0:36 / /sys/fs/cgroup/pids rw shared:7 - cgroup cgroup rw,pids
35 31 0:35 / /sys/fs/cgroup/blkio rw shared:8 - cgroup cgroup rw,blkio
36 31 0:37 / /sys/fs/cgroup/systemd rw shared:9 - cgroup cgroup rw,xattr,name=systemd
`
	mountHybrid = "37 31 0:38 / /sys/fs/cgroup/unified rw shared:3 - cgroup2 cgroup2 rw,nsdelegate\n"
)

// machine creates a tree with these mounts and cgroups, which are given by full path.
func machine(t *testing.T, mounts string, cgroups ...string) string {
	t.Helper()
	root := tree(t, map[string]string{"proc/self/mountinfo": mounts})
	for line := range strings.Lines(mounts) {
		if h, ok := parseHierarchy(line); ok {
			cgroups = append(cgroups, h.dir)
		}
	}
	for _, dir := range cgroups {
		add(t, root, dir+"/cgroup.procs", "")
	}
	return root
}

func open(t *testing.T, root string) *Cgroups {
	t.Helper()
	c, err := OpenCgroups(root)
	check(t, err)
	return c
}

// inode returns the ID of a cgroup in a tree of machine.
func inode(t *testing.T, root, dir string) uint64 {
	t.Helper()
	info, err := (&hierarchy{}).stat(filepath.Join(root, dir))
	check(t, err)
	return info.id
}

func parseHierarchy(line string) (*hierarchy, bool) {
	m, ok := parseMount(line)
	if !ok {
		return nil, false
	}
	return newHierarchy(m)
}

func TestParseMount(t *testing.T) {
	tests := []struct {
		line string
		want *hierarchy
	}{
		{"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate", &hierarchy{dir: "/sys/fs/cgroup", base: "/", v2: true}},
		{"32 31 0:29 / /c/cpu,cpuacct rw shared:1 master:2 - cgroup cgroup rw,cpu,cpuacct",
			&hierarchy{dir: "/c/cpu,cpuacct", base: "/", controllers: []string{"cpu", "cpuacct"}}},
		{"35 31 0:35 /a\\040b /c/blk\\134io rw - cgroup none rw,clone_children,blkio", &hierarchy{dir: `/c/blk\io`, base: "/a b", controllers: []string{"io"}}},
		{"35 31 0:32 /../.. /c/memory rw - cgroup cgroup rw,memory", &hierarchy{dir: "/c/memory", base: "/", controllers: []string{"memory"}}},
		{"36 31 0:37 / /c/systemd rw - cgroup cgroup rw,xattr,release_agent=/memory,name=systemd", &hierarchy{dir: "/c/systemd", base: "/"}},
		{"31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755", nil},
		{"32 31 0:29 / /c rw cgroup cgroup rw,cpu", nil},
		{"32 31 - cgroup cgroup rw", nil},
		{"32 31 0:29 / /c rw - cgroup", nil},
		{"", nil},
	}
	for _, test := range tests {
		got, ok := parseHierarchy(test.line + "\n")
		if ok != (test.want != nil) {
			t.Errorf("%s\n got %+v, %v\nwant %+v", test.line, got, ok, test.want)
			continue
		}
		if ok && (got.dir != test.want.dir || got.base != test.want.base || got.v2 != test.want.v2 ||
			!slices.Equal(got.controllers, test.want.controllers)) {
			t.Errorf("%s\n got %+v\nwant %+v", test.line, got, test.want)
		}
	}
}

func TestDefault(t *testing.T) {
	const c = "/sys/fs/cgroup/"
	tests := []struct {
		name, mounts, want string
		controllers        string // of cgroup v2
		cgroups            []string
	}{
		{name: "v2", mounts: mountsV2, want: ""},
		{name: "v1 without cgroups", mounts: mountsV1, want: "memory"},
		{name: "v1 with equal numbers", mounts: mountsV1, want: "memory", cgroups: []string{c + "memory/a", c + "pids/a", c + "blkio/a"}},
		{name: "v1 with more in pids", mounts: mountsV1, want: "pids", cgroups: []string{c + "memory/a", c + "pids/a", c + "pids/a/b"}},
		{name: "v1 io, mounted as blkio", mounts: mountsV1, want: "io", cgroups: []string{c + "blkio/a"}},
		{name: "v1 of two controllers", mounts: mountsV1, want: "cpu", cgroups: []string{c + "cpu,cpuacct/a"}},
		{name: "named hierarchy is ignored", mounts: mountsV1, want: "memory", cgroups: []string{c + "systemd/a", c + "systemd/a/b"}},
		{name: "hybrid without cgroups", mounts: mountsV1 + mountHybrid, want: "memory"},
		{name: "hybrid, services in both", mounts: mountsV1 + mountHybrid, want: "memory",
			cgroups: []string{c + "memory/docker", c + "unified/system.slice", c + "unified/system.slice/x.service"}},
		{name: "hybrid, all in v2", mounts: mountsV1 + mountHybrid, want: "", cgroups: []string{c + "unified/system.slice"}},
		{name: "hybrid, v2 with minor controllers", mounts: mountsV1 + mountHybrid, want: "memory", controllers: "hugetlb misc\n", cgroups: []string{c + "memory/a"}},
		{name: "hybrid, v2 with the controllers", mounts: mountsV1 + mountHybrid, want: "", controllers: "cpuset memory\n", cgroups: []string{c + "blkio/a"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := machine(t, test.mounts, test.cgroups...)
			if test.controllers != "" {
				add(t, root, c+"unified/cgroup.controllers", test.controllers)
			}
			if got := open(t, root).Default(); got != test.want {
				t.Errorf("Default() = %q, want %q", got, test.want)
			}
		})
	}
}

// TestOpenCgroupsHidden opens cgroups that a tmpfs on /sys/fs/cgroup hides. mountinfo lists hidden
// mounts too.
func TestOpenCgroupsHidden(t *testing.T) {
	root := tree(t, map[string]string{"proc/self/mountinfo": mountsV1 + mountHybrid, "sys/fs/cgroup/x": ""})
	if _, err := OpenCgroups(root); !errors.Is(err, ErrNoCgroups) || !strings.Contains(err.Error(), "mount -t cgroup2 cgroup2 /sys/fs/cgroup") {
		t.Errorf("got %v, want ErrNoCgroups with the mount command", err)
	}
}

func TestOpenCgroupsNotMounted(t *testing.T) {
	_, named, _ := strings.Cut(mountsV1, "rw,blkio\n")
	for _, mounts := range []string{"", "25 30 0:23 / /proc rw - proc proc rw\n", named} {
		root := machine(t, mounts)
		if _, err := OpenCgroups(root); !errors.Is(err, ErrNoCgroups) {
			t.Errorf("with mounts %q: %v, want ErrNoCgroups", mounts, err)
		}
	}
	if _, err := OpenCgroups(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without mountinfo: %v, want ErrNotExist", err)
	}
}

func TestLookup(t *testing.T) {
	const c = "/sys/fs/cgroup/"
	root := machine(t, mountsV1+mountHybrid,
		c+"unified/system.slice/x.service", c+"unified/both", c+"memory/both", c+"memory/docker/web", c+"memory/docker/db",
		c+"cpu,cpuacct/a", c+"blkio/a", c+"systemd/a", c+"memoryx")
	add(t, root, c+"cpu", "-> cpu,cpuacct")
	add(t, root, c+"memory/file", "")
	add(t, root, c+"memory/hollow/", "")
	cgroups := open(t, root)
	tests := []struct {
		arg, dir string
		want     Target
	}{
		{"/system.slice/x.service", "unified/system.slice/x.service", Target{Path: "/system.slice/x.service"}},
		{"system.slice/x.service/", "unified/system.slice/x.service", Target{Path: "/system.slice/x.service"}},
		{c + "unified/system.slice", "", Target{}},
		{c + "unified/both", "unified/both", Target{Path: "/both"}},
		{"both", "unified/both", Target{Path: "/both"}},
		{c + "memory/both", "memory/both", Target{Controller: "memory", Path: "/both"}},
		{"docker/web", "memory/docker/web", Target{Controller: "memory", Path: "/docker/web"}},
		{"/", "unified", Target{Path: "/"}},
		{c + "memory", "memory", Target{Controller: "memory", Path: "/"}},
		{c + "cpu/a", "cpu,cpuacct/a", Target{Controller: "cpu", Path: "/a"}},
		{c + "blkio/a", "blkio/a", Target{Controller: "io", Path: "/a"}},
		{"../../both", "unified/both", Target{Path: "/both"}},
		{"", "", Target{}},
		{"nosuch", "", Target{}},
		{"memory/both", "", Target{}},
		{"/sys/fs/cgroup", "", Target{}},
		{c + "memoryx", "", Target{}},
		{c + "memory/file", "", Target{}},
		{c + "memory/hollow", "", Target{}},
		{c + "memory/docker/web/cgroup.procs", "", Target{}},
		{"/proc/self", "", Target{}},
	}
	for _, test := range tests {
		got, err := cgroups.Lookup(test.arg)
		if test.dir == "" {
			if !errors.Is(err, ErrNotCgroup) {
				t.Errorf("Lookup(%q) = %+v, %v; want ErrNotCgroup", test.arg, got, err)
			}
			continue
		}
		test.want.ID = inode(t, root, c+test.dir)
		if got != test.want || err != nil {
			t.Errorf("Lookup(%q) = %+v, %v; want %+v", test.arg, got, err, test.want)
		}
	}
	for _, arg := range []string{c + "systemd", c + "systemd/a"} {
		if got, err := cgroups.Lookup(arg); !errors.Is(err, ErrNamedHierarchy) {
			t.Errorf("Lookup(%q) = %+v, %v; want ErrNamedHierarchy", arg, got, err)
		}
	}
}

func TestLookupError(t *testing.T) {
	root := machine(t, mountsV1+mountHybrid, "/sys/fs/cgroup/memory/a")
	_, err := open(t, root).Lookup("/a\x1b[2J")
	want := `find cgroup "/a\x1b[2J": no such cgroup in ` + root + "/sys/fs/cgroup/unified or " + root + "/sys/fs/cgroup/memory"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestLookupInSubtree uses a mount of a subtree, as in a container.
func TestLookupInSubtree(t *testing.T) {
	mounts := "30 23 0:26 /docker/" + idA + " /sys/fs/cgroup ro - cgroup2 cgroup ro\n"
	root := machine(t, mounts, "/sys/fs/cgroup/x")
	got, err := open(t, root).Lookup("x")
	want := Target{ID: inode(t, root, "/sys/fs/cgroup/x"), Path: "/docker/" + idA + "/x"}
	if got != want || err != nil {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// TestMountsTwice expects that a mount of the whole hierarchy is preferred to one of a subtree, and
// the last of several mounts at the same mount point.
func TestMountsTwice(t *testing.T) {
	part := "40 1 0:26 /x /run/part rw - cgroup2 none rw\n"
	c := open(t, machine(t, part+mountsV2))
	if want := "/sys/fs/cgroup"; !strings.HasSuffix(c.main.dir, want) || c.main != c.v2 {
		t.Errorf("main hierarchy %+v, want that at %s", c.main, want)
	}
	over := "40 30 0:27 / /sys/fs/cgroup rw - cgroup cgroup rw,memory\n"
	if c := open(t, machine(t, mountsV2+over)); c.Default() != "memory" || c.v2 != nil {
		t.Errorf("v1 mount on top of cgroup v2: Default() = %q, v2 %+v, want memory and nil", c.Default(), c.v2)
	}
}

// TestLookupInNestedMount uses a v1 hierarchy, with other IDs, that is mounted below cgroup v2.
func TestLookupInNestedMount(t *testing.T) {
	const dir = "/sys/fs/cgroup/net_cls"
	for _, mounts := range []string{
		mountsV2 + "40 30 0:27 / " + dir + " rw - cgroup cgroup rw,net_cls\n",
		"40 30 0:27 / " + dir + " rw - cgroup cgroup rw,net_cls\n" + mountsV2,
	} {
		root := machine(t, mounts, dir+"/a")
		add(t, root, "sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
		cgroups := open(t, root)
		want := Target{ID: inode(t, root, dir+"/a"), Controller: "net_cls", Path: "/a"}
		for _, arg := range []string{dir + "/a", "net_cls/a"} {
			if got, err := cgroups.Lookup(arg); got != want || err != nil {
				t.Errorf("Lookup(%q) = %+v, %v; want %+v", arg, got, err, want)
			}
		}
	}
}
