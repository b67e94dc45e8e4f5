package biolatency

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

// With this environment, the test binary writes blocks to a disk and exits.
const (
	writesTo = "BIOLATENCY_TEST_DISK"
	writesN  = "BIOLATENCY_TEST_BLOCKS"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writesTo); path != "" {
		os.Exit(writeTo(path))
	}
	os.Exit(m.Run())
}

func writeTo(path string) int {
	n, _ := strconv.Atoi(os.Getenv(writesN))
	b, _ := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_DIRECT, 0)
	for i := 0; err == nil && i < n; i++ {
		_, err = unix.Pwrite(fd, b, int64(i*stride))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// writeIn starts a process in the cgroup that writes n blocks.
func writeIn(t testing.TB, cgroup, disk string, n int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := tooltest.InCgroup(cgroup, self)
	cmd.Env = append(os.Environ(), writesTo+"="+disk, writesN+"="+strconv.Itoa(n))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("write in %s: %v: %s", cgroup, err, out)
	}
}

func testCgroup(t testing.TB, hierarchy, name string) string {
	t.Helper()
	return tooltest.Cgroup(t, hierarchy, fmt.Sprintf("corescope-bio-%d-%s", os.Getpid(), name))
}

// defaultHierarchy is the cgroup hierarchy that labels refer to.
func defaultHierarchy(t testing.TB) string {
	t.Helper()
	cgroups, err := system.OpenCgroups("/")
	if err != nil {
		t.Skipf("cgroups are unavailable: %v", err)
	}
	return cmp.Or(cgroups.Default(), "cgroup2")
}

// TestCgroup filters I/O by the cgroup of the submitter. It is completed by a kernel thread outside
// these cgroups.
func TestCgroup(t *testing.T) {
	tooltest.OnHooks(t, "submit", "insert", "issue")
	for _, hierarchy := range []string{"cgroup2", "memory"} {
		t.Run(hierarchy, func(t *testing.T) {
			l := newLoop(t, 0)
			below := testCgroup(t, hierarchy, "inside/below")
			inside := filepath.Dir(below)
			sibling := testCgroup(t, hierarchy, "sibling")
			res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.name, "--cgroup", inside}, func() {
				writeIn(t, inside, l.path, 10)
				writeIn(t, below, l.path, 20)
				writeIn(t, sibling, l.path, 40)
				writeBlocks(t, l.dev, 80)
			})
			if h := find(t, res, nil); h.Num("count") != 30 {
				t.Errorf("%v writes, want 30, of the cgroup and its child", h.Num("count"))
			}
			checkCounters(t, res, nil)
		})
	}
}

// TestCgroups checks one histogram per cgroup.
func TestCgroups(t *testing.T) {
	tooltest.AnyAttachType(t)
	hierarchy := defaultHierarchy(t)
	l := newLoop(t, 0)
	one, other := testCgroup(t, hierarchy, "one"), testCgroup(t, hierarchy, "other")
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.name, "--cgroups"}, func() {
		writeIn(t, one, l.path, 10)
		writeIn(t, other, l.path, 20)
	})
	for dir, n := range map[string]float64{one: 10, other: 20} {
		if h := find(t, res, map[string]string{"cgroup": "/" + filepath.Base(dir)}); h.Num("count") != n {
			t.Errorf("%v writes of %s, want %v", h.Num("count"), dir, n)
		}
	}
}

// TestContainers checks the container name of a process that has exited.
func TestContainers(t *testing.T) {
	tooltest.AnyAttachType(t)
	const id = "b10b10b10b10b10b10b10b10b10b10b10b10b10b10b10b10b10b10b10b10b10b"
	dir := tooltest.Cgroup(t, defaultHierarchy(t), "docker/"+id)
	l := newLoop(t, 0)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.name, "--containers"}, func() {
		writeIn(t, dir, l.path, 10)
		writeBlocks(t, l.dev, 20)
	})
	for _, h := range res.Histograms {
		want := map[bool]float64{true: 10, false: 20}[strings.HasPrefix(id, h.Object("key").Str("container")) && h.Object("key").Has("container")]
		if h.Num("count") != want {
			t.Errorf("histograms: %v", keys(res))
		}
	}
	if len(res.Histograms) != 2 {
		t.Errorf("histograms: %v", keys(res))
	}
}

// TestKernelThread checks I/O through a second loop device, whose driver submits it to the first
// one in a kernel thread: the cgroup is that of the process.
func TestKernelThread(t *testing.T) {
	tooltest.AnyAttachType(t)
	inside, sibling := testCgroup(t, "blkio", "inside"), testCgroup(t, "blkio", "sibling")
	l := newLoop(t, 0)
	upper := loopOver(t, int(l.dev.Fd()), unix.LO_FLAGS_DIRECT_IO)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", l.name, "--operations", "--cgroup", inside}, func() {
		writeIn(t, inside, upper.path, 25)
		writeIn(t, sibling, upper.path, 50)
	})
	if h := find(t, res, map[string]string{"operation": "write"}); h.Num("count") != 25 {
		t.Errorf("%v writes, want 25: %v", h.Num("count"), keys(res))
	}
}
