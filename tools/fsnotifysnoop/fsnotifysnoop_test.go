package fsnotifysnoop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// watch returns a descriptor of inotify that watches a new directory for these events.
func watch(t *testing.T, mask uint32) (fd int, dir string) {
	t.Helper()
	dir = t.TempDir()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, mask); err != nil {
		t.Fatal(err)
	}
	return fd, dir
}

// received is what read(2) returned: "mask wd cookie name" of each event.
func received(t *testing.T, fd int) (out []string) {
	t.Helper()
	buf := make([]byte, 1<<16)
	n, err := unix.Read(fd, buf)
	if err != nil {
		t.Error(err)
	}
	for at := 0; at+unix.SizeofInotifyEvent <= n; {
		field := func(i int) uint32 { return binary.NativeEndian.Uint32(buf[at+4*i:]) }
		size := int(field(3))
		name, _, _ := bytes.Cut(buf[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+size], []byte{0})
		out = append(out, fmt.Sprintf("%#x %d %d %s", field(1), field(0), field(2), name))
		at += unix.SizeofInotifyEvent + size
	}
	return out
}

// sh runs a shell and returns its PID.
func sh(t *testing.T, script string, args ...string) int {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", script, err, out)
	}
	return cmd.Process.Pid
}

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// TestInotify compares the rows with the events that read(2) returns.
func TestInotify(t *testing.T) {
	tooltest.KernelFunctions(t)
	fd, dir := watch(t, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_CLOSE_WRITE|unix.IN_MOVE)
	defer unix.Close(fd)
	var want []string
	var pid int
	res := tooltest.JSON(t, Tool, self(), func() {
		pid = sh(t, `echo x >"$1/first"; : >"$1/second file"; exec 3>&-`, dir)
		if err := os.Rename(filepath.Join(dir, "first"), filepath.Join(dir, "renamed")); err != nil {
			t.Error(err)
		}
		want = received(t, fd)
	})
	const known = 0xffff | unix.IN_ISDIR
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprintf("%#x %v %v %s", uint32(r.Num("mask"))&known, r.Num("watch"), r.Num("cookie"), r.Str("name")))
		by := pid
		if strings.HasPrefix(r.Str("events"), "MOVED") {
			by = os.Getpid()
		}
		if int(r.Num("tracee_pid")) != by || r.Str("api") != "inotify" || int(r.Num("pid")) != os.Getpid() {
			t.Errorf("row %v, want tracee %d", r, by)
		}
	}
	if len(want) < 7 || !slices.Equal(got, want) {
		t.Errorf("rows %q, want those that read(2) returned: %q", got, want)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

// TestUnread checks the counters of events that are merged, and that are not read.
func TestUnread(t *testing.T) {
	tooltest.KernelFunctions(t)
	const n = 6
	fd, dir := watch(t, unix.IN_ATTRIB|unix.IN_CREATE)
	res := tooltest.JSON(t, Tool, append(self(), "--tracee-pid", strconv.Itoa(os.Getpid())), func() {
		for range n {
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Error(err)
			}
		}
		if got := received(t, fd); len(got) != 1 {
			t.Errorf("%q, want one event", got)
		}
		if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
			t.Error(err)
		}
		unix.Close(fd)
	})
	counters := res.Summary.Object("counters")
	if len(res.Events) != 1 || counters.Num("merged") != n-1 || counters.Num("unread") != 1 {
		t.Errorf("rows %v, counters %v, want one row, %d events merged and one not read", res.Events, counters, n-1)
	}
}

// TestFilters selects the interface and the tracee.
func TestFilters(t *testing.T) {
	tooltest.KernelFunctions(t)
	for _, args := range [][]string{{"--fanotify-only"}, {"--tracee-pid", strconv.Itoa(os.Getppid())}} {
		fd, dir := watch(t, unix.IN_CREATE)
		defer unix.Close(fd)
		res := tooltest.JSON(t, Tool, append(self(), args...), func() {
			if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
				t.Error(err)
			}
			received(t, fd)
		})
		if len(res.Events) != 0 {
			t.Errorf("%q: %v", args, res.Events)
		}
	}
}

// TestFanotify compares the rows with the events that read(2) returns.
func TestFanotify(t *testing.T) {
	tooltest.KernelFunctions(t)
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if errors.Is(err, unix.ENOSYS) {
		t.Skip("fanotify_init(2) fails with ENOSYS: the kernel lacks CONFIG_FANOTIFY")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	dir := t.TempDir()
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_CLOSE_WRITE|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, dir); err != nil {
		t.Fatal(err)
	}
	var pid int
	res := tooltest.JSON(t, Tool, append(self(), "--fanotify-only"), func() {
		pid = sh(t, `echo x >"$1/watched"`, dir)
		buf := make([]byte, 4096)
		n, err := unix.Read(fd, buf)
		if err != nil || n < unix.FAN_EVENT_METADATA_LEN {
			t.Errorf("read %d bytes: %v", n, err)
		}
		unix.Close(int(int32(binary.NativeEndian.Uint32(buf[16:]))))
		if by := binary.NativeEndian.Uint32(buf[20:]); int(by) != pid {
			t.Errorf("fanotify reports process %d, want %d", by, pid)
		}
	})
	if len(res.Events) != 1 {
		t.Fatalf("rows %v, want one", res.Events)
	}
	r := res.Events[0]
	if int(r.Num("tracee_pid")) != pid || r.Str("tracee_comm") != "sh" || r.Str("events") != "CLOSE_WRITE" || r.Str("name") != "watched" || r.Str("api") != "fanotify" || r.Has("watch") {
		t.Errorf("row %v, want CLOSE_WRITE of watched by sh %d", r, pid)
	}
}

func TestRefused(t *testing.T) {
	tooltest.AnyAttachType(t)
	tooltest.Root(t)
	tooltest.Fails(t, Tool, []string{"--inotify-only", "--fanotify-only"}, tool.ExitUsage, "exclude each other")
}
