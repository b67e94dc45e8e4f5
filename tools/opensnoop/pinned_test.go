package opensnoop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// pin creates a map, pins it in a file system of its own, and returns the map and its path.
func pin(t *testing.T, spec *ebpf.MapSpec) (*ebpf.Map, string) {
	t.Helper()
	tooltest.Root(t)
	dir := t.TempDir()
	if err := unix.Mount("bpffs", dir, "bpf", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	m, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	path := filepath.Join(dir, "set")
	if err := m.Pin(path); err != nil {
		t.Fatal(err)
	}
	return m, path
}

// set is the definition of a map as users create it with bpftool.
func set(keySize uint32) *ebpf.MapSpec {
	return &ebpf.MapSpec{Type: ebpf.Hash, KeySize: keySize, ValueSize: 4, MaxEntries: 128}
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func add(t *testing.T, m *ebpf.Map, id uint64) {
	t.Helper()
	if err := m.Put(id, uint32(0)); err != nil {
		t.Fatal(err)
	}
}

func paths(res *tooltest.Result) string {
	var all []string
	for _, r := range res.Events {
		all = append(all, r.Str("path"))
	}
	return strings.Join(all, " ")
}

// TestCgroupMap adds and removes cgroups while the tool runs.
func TestCgroupMap(t *testing.T) {
	m, path := pin(t, set(8))
	name := fmt.Sprintf("corescope-pinned-%d", os.Getpid())
	first, second := tooltest.Cgroup(t, "cgroup2", name+"-first"), tooltest.Cgroup(t, "cgroup2", name+"-second")
	below := tooltest.Cgroup(t, "cgroup2", name+"-first/below")
	res := tooltest.JSON(t, Tool, []string{"--cgroupmap", path, "--path", "*.pinned-test"}, func() {
		open := func(dir, file string) { run(t, tooltest.InCgroup(dir, "/bin/cat", file)) }
		open(first, "/none.pinned-test")
		add(t, m, inode(t, first))
		open(first, "/first.pinned-test")
		open(below, "/below.pinned-test")
		open(second, "/second.pinned-test")
		if err := m.Delete(inode(t, first)); err != nil {
			t.Error(err)
		}
		add(t, m, inode(t, second))
		open(first, "/removed.pinned-test")
		open(second, "/added.pinned-test")
	})
	if got := paths(res); got != "/first.pinned-test /added.pinned-test" {
		t.Errorf("opened %s", got)
	}
}

func TestMountNamespaceMap(t *testing.T) {
	m, path := pin(t, set(8))
	res := tooltest.JSON(t, Tool, []string{"--mntnsmap", path, "--path", "*.pinned-test"}, func() {
		runtime.LockOSThread() // other threads can have the mount namespaces of other tests
		defer runtime.UnlockOSThread()
		add(t, m, inode(t, "/proc/thread-self/ns/mnt"))
		run(t, exec.Command("/bin/cat", "/inside.pinned-test"))
		other := exec.Command("/bin/cat", "/outside.pinned-test")
		other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		run(t, other)
	})
	if got := paths(res); got != "/inside.pinned-test" {
		t.Errorf("opened %s", got)
	}
}

func TestWrongMap(t *testing.T) {
	_, path := pin(t, set(4))
	tooltest.Fails(t, Tool, []string{"--cgroupmap", path}, tool.ExitUsage, "usage: --cgroupmap "+path+": the map is of type Hash with keys of 4 bytes: it must be a hash map with keys of 8 bytes")
	tooltest.Fails(t, Tool, []string{"--mntnsmap", path + "-missing"}, tool.ExitUsage, "usage: --mntnsmap "+path+"-missing: open pinned map: ")
}
