package mountsnoop

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func pointer(t *testing.T, s string) uintptr {
	t.Helper()
	b, err := unix.BytePtrFromString(s)
	if err != nil {
		t.Fatal(err)
	}
	return uintptr(unsafe.Pointer(b))
}

// trace returns the rows of f, which runs on a thread with its own mount namespace, and the inode
// number of that namespace. The namespace disappears with the thread.
func trace(t *testing.T, f func()) (rows []tooltest.Row, ns float64) {
	t.Helper()
	var tid int
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		runtime.LockOSThread() // never unlocked, so the thread exits with the goroutine
		var st unix.Stat_t
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Stat("/proc/thread-self/ns/mnt", &st))
		if err != nil {
			t.Error(err)
			return
		}
		tid, ns = unix.Gettid(), float64(st.Ino)
		f()
	})
	rows = res.Where(func(r tooltest.Row) bool { return int(r.Num("tid")) == tid })
	if want := `mount("", "/", "", MS_REC|MS_PRIVATE, NULL) = 0`; len(rows) == 0 || rows[0].Str("call") != want {
		t.Fatalf("rows %v, want %s first", rows, want)
	}
	return rows[1:], ns
}

func TestMount(t *testing.T) {
	dir := t.TempDir()
	rows, ns := trace(t, func() {
		if err := unix.Mount("none", dir, "tmpfs", unix.MS_NOSUID|unix.MS_RDONLY, "size=64k"); err != nil {
			t.Error(err)
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		if err := unix.Unmount(dir, 0); err != unix.EINVAL {
			t.Errorf("second unmount: %v", err)
		}
	})
	want := []string{
		`mount("none", "` + dir + `", "tmpfs", MS_RDONLY|MS_NOSUID, "size=64k") = 0`,
		`umount2("` + dir + `", MNT_DETACH) = 0`,
		`umount2("` + dir + `", 0) = -22 EINVAL`,
	}
	checkCalls(t, rows, want)
	for _, r := range rows {
		if r.Num("mntns") != ns || int(r.Num("ppid")) != os.Getppid() || r.Num("latency_ns") <= 0 {
			t.Errorf("mount namespace, parent and latency: %v; want namespace %v, parent %d", r, ns, os.Getppid())
		}
	}
	r := rows[0]
	for key, val := range map[string]string{"source": "none", "target": dir, "fs": "tmpfs", "data": "size=64k", "operation": "MOUNT"} {
		if r.Str(key) != val {
			t.Errorf("%s is %q, want %q", key, r.Str(key), val)
		}
	}
	if !slices.Equal(r.List("flags"), []string{"MS_RDONLY", "MS_NOSUID"}) {
		t.Errorf("flags %q", r.List("flags"))
	}
}

func checkCalls(t *testing.T, rows []tooltest.Row, want []string) {
	t.Helper()
	var got []string
	for _, r := range rows {
		got = append(got, r.Str("call"))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestNewCalls mounts a file system with a call for each step.
func TestNewCalls(t *testing.T) {
	dir := t.TempDir()
	var fs, mount, tree int
	var hasAttr bool
	call := func(nr uintptr, args ...uintptr) int {
		var a [6]uintptr
		copy(a[:], args)
		ret, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		if errno != 0 {
			return -int(errno)
		}
		return int(ret)
	}
	cwd, empty := ^uintptr(99), pointer(t, "")
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY, Attr_clr: unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
	rows, _ := trace(t, func() {
		fs = call(unix.SYS_FSOPEN, pointer(t, "tmpfs"), unix.FSOPEN_CLOEXEC)
		call(unix.SYS_FSCONFIG, uintptr(fs), unix.FSCONFIG_SET_STRING, pointer(t, "size"), pointer(t, "64k"))
		call(unix.SYS_FSCONFIG, uintptr(fs), unix.FSCONFIG_CMD_CREATE)
		call(unix.SYS_FSCONFIG, uintptr(fs), unix.FSCONFIG_SET_PATH, pointer(t, "no-such-key"), pointer(t, "/"), cwd)
		mount = call(unix.SYS_FSMOUNT, uintptr(fs), unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NODEV)
		call(unix.SYS_MOVE_MOUNT, uintptr(mount), empty, cwd, pointer(t, dir), unix.MOVE_MOUNT_F_EMPTY_PATH)
		tree = call(unix.SYS_OPEN_TREE, cwd, pointer(t, dir), unix.OPEN_TREE_CLOEXEC)
		hasAttr = call(unix.SYS_MOUNT_SETATTR, cwd, pointer(t, dir), unix.AT_RECURSIVE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr)) == 0
		for _, fd := range []int{fs, mount, tree} {
			unix.Close(fd)
		}
	})
	if fs < 0 || mount < 0 || tree < 0 {
		t.Fatalf("fsopen %d, fsmount %d, open_tree %d", fs, mount, tree)
	}
	result := "0"
	if !hasAttr {
		result = "-38 ENOSYS" // before 5.12
	}
	checkCalls(t, rows, []string{
		`fsopen("tmpfs", FSOPEN_CLOEXEC) = ` + strconv.Itoa(fs),
		`fsconfig(` + strconv.Itoa(fs) + `, FSCONFIG_SET_STRING, "size", "64k", 0) = 0`,
		`fsconfig(` + strconv.Itoa(fs) + `, FSCONFIG_CMD_CREATE, NULL, NULL, 0) = 0`,
		`fsconfig(` + strconv.Itoa(fs) + `, FSCONFIG_SET_PATH, "no-such-key", "/", -100) = -16 EBUSY`,
		`fsmount(` + strconv.Itoa(fs) + `, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV) = ` + strconv.Itoa(mount),
		`move_mount(` + strconv.Itoa(mount) + `, "", -100, "` + dir + `", MOVE_MOUNT_F_EMPTY_PATH) = 0`,
		`open_tree(-100, "` + dir + `", OPEN_TREE_CLOEXEC) = ` + strconv.Itoa(tree),
		`mount_setattr(-100, "` + dir + `", AT_RECURSIVE, {attr_set=MOUNT_ATTR_RDONLY, attr_clr=MOUNT_ATTR_NODEV, propagation=MS_PRIVATE}, 32) = ` + result,
	})
}

// TestFailures makes calls that fail, with strings that cannot be read.
func TestFailures(t *testing.T) {
	rows, _ := trace(t, func() {
		unix.Syscall6(unix.SYS_MOUNT, 8, pointer(t, "/none"), pointer(t, "tmpfs"), 1<<9, 0, 0)
		unix.PivotRoot("/none", "/none")
		unix.Mount(`a", "b`, "/\n\x1b1\xff", `c\d`, 0, "é\u202e")
	})
	checkCalls(t, rows, []string{
		`mount(0x8, "/none", "tmpfs", 0x200, NULL) = -14 EFAULT`,
		`pivot_root("/none", "/none") = -2 ENOENT`,
		`mount("a\", \"b", "/\n\0331\377", "c\\d", 0, "é\342\200\256") = -2 ENOENT`,
	})
}

func TestCompat(t *testing.T) {
	prog := tooltest.I386(t, []byte("/none\x00"), func(data uint32) []byte {
		return slices.Concat(
			tooltest.Call386(22, data),     // umount
			tooltest.Call386(52, data, 2),  // umount2
			tooltest.Call386(430, data, 1), // fsopen
			tooltest.Exit386())
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	checkCalls(t, res.Events, []string{
		`umount("/none") = -2 ENOENT`, `umount2("/none", MNT_DETACH) = -2 ENOENT`, `fsopen("/none", FSOPEN_CLOEXEC) = -19 ENODEV`,
	})
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	for args, want := range map[string]string{
		"":      "COMM PID TID MNT_NS CALL",
		"-t -P": "TIME COMM PID TID PCOMM PPID MNT_NS CALL",
		"-d":    "COMM PID TID MNT_NS OP RET LAT(ms) FS SOURCE TARGET DATA FLAGS CMD KEY VALUE",
	} {
		pid := strconv.Itoa(os.Getpid())
		out := tooltest.Text(t, Tool, append(strings.Fields(args), "-p", pid), func() { unix.Unmount("/none", 0) })
		lines := strings.Split(out, "\n")
		if got := strings.Join(strings.Fields(lines[0]), " "); got != want || len(lines) != 3 || !strings.Contains(lines[1], pid) {
			t.Errorf("%q: %q, want the header %q and a row", args, lines, want)
		}
	}
}
