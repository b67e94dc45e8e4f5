package setuids

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// status returns the four user or group IDs of this thread, as the kernel shows them.
func status(t *testing.T, field string) (ids string) {
	text, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	t.Errorf("no %s in %s", field, text)
	return ""
}

// allIDs returns four columns of a row in the order of status.
func allIDs(r tooltest.Row, when string) string {
	var all []string
	for _, key := range []string{"real", "effective", "saved", "fs"} {
		all = append(all, fmt.Sprint(int(r.Num(when+"_"+key+"_id"))))
	}
	return strings.Join(all, " ")
}

const keep = ^uintptr(0) // -1

// TestIDs makes each call in a thread of its own, and compares the IDs with those in /proc.
func TestIDs(t *testing.T) {
	calls := []struct {
		nr            uintptr
		name, field   string
		args          [3]uintptr
		argsText, err string
	}{
		{unix.SYS_SETRESGID, "setresgid", "Gid", [3]uintptr{1, 2, 3}, "rgid=1 egid=2 sgid=3", ""},
		{unix.SYS_SETREGID, "setregid", "Gid", [3]uintptr{keep, 5}, "rgid=-1 egid=5", ""},
		{unix.SYS_SETFSGID, "setfsgid", "Gid", [3]uintptr{6}, "gid=6", ""},
		{unix.SYS_SETGID, "setgid", "Gid", [3]uintptr{3000000000}, "gid=3000000000", ""},
		{unix.SYS_SETFSUID, "setfsuid", "Uid", [3]uintptr{11}, "uid=11", ""},
		{unix.SYS_SETREUID, "setreuid", "Uid", [3]uintptr{keep, 12}, "ruid=-1 euid=12", ""},
		{unix.SYS_SETUID, "setuid", "Uid", [3]uintptr{0}, "uid=0", ""},
		{unix.SYS_SETRESUID, "setresuid", "Uid", [3]uintptr{21, 22, 23}, "ruid=21 euid=22 suid=23", ""},
		{unix.SYS_SETUID, "setuid", "Uid", [3]uintptr{99}, "uid=99", "EPERM"},
	}
	type change struct{ call, before, after, ret string }
	var want []change
	tid := 0
	res := tooltest.JSON(t, Tool, []string{"--filter", fmt.Sprintf("pid == %d", os.Getpid())}, func() {
		done := make(chan bool)
		go func() {
			defer close(done)
			runtime.LockOSThread()
			tid = unix.Gettid()
			for _, c := range calls {
				before := status(t, c.field)
				r, _, errno := unix.RawSyscall(c.nr, c.args[0], c.args[1], c.args[2])
				if errno != 0 {
					r = -uintptr(errno)
				}
				want = append(want, change{c.name + " " + c.argsText + " " + c.err, before, status(t, c.field), fmt.Sprint(int(r))})
			}
		}()
		<-done
	})
	var got []change
	for _, r := range res.Events {
		got = append(got, change{r.Str("syscall") + " " + r.Str("args") + " " + r.Str("error"), allIDs(r, "old"), allIDs(r, "new"), fmt.Sprint(int(r.Num("ret")))})
		isGroup := strings.Contains(r.Str("syscall"), "gid")
		if int(r.Num("tid")) != tid || (r.Str("kind") == "group") != isGroup || !isGroup && fmt.Sprint(r.Num("uid")) != strings.Fields(allIDs(r, "new"))[0] {
			t.Errorf("row: %v", r)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestCompat calls the variants of 32-bit programs with 16-bit and 32-bit IDs.
func TestCompat(t *testing.T) {
	prog := tooltest.I386(t, nil, func(uint32) []byte {
		return slices.Concat(
			tooltest.Call386(170, 0xffff, 7, 0x10008), // setresgid, with bits that are ignored
			tooltest.Call386(214, 70000),              // setgid32
			tooltest.Call386(138, 9),                  // setfsuid
			tooltest.Call386(164, 0xffff, 3, 0xffff),  // setresuid
			tooltest.Call386(213, 123456),             // setuid32: not permitted
			tooltest.Exit386())
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Str("syscall"), " ", r.Str("args"), " ", r.Num("ret"), ": ", allIDs(r, "old"), " > ", allIDs(r, "new")))
	}
	want := []string{
		"setresgid rgid=-1 egid=7 sgid=8 0: 0 0 0 0 > 0 7 8 7",
		"setgid32 gid=70000 0: 0 7 8 7 > 70000 70000 70000 70000",
		"setfsuid uid=9 0: 0 0 0 0 > 0 0 0 9",
		"setresuid ruid=-1 euid=3 suid=-1 0: 0 0 0 9 > 0 3 0 3",
		"setuid32 uid=123456 -1: 0 3 0 3 > 0 3 0 3",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestFailed(t *testing.T) {
	prog := tooltest.I386(t, nil, func(uint32) []byte {
		return slices.Concat(tooltest.Call386(208, 1, 1, 1), tooltest.Call386(215, 9), tooltest.Call386(204, 2, 2), tooltest.Exit386())
	})
	text := tooltest.Text(t, Tool, []string{"--comm", "prog386", "-x"}, func() {
		cmd := exec.Command(prog)
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
	})
	lines := strings.Split(text, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME PID COMM UID SYSCALL ARGS RET" {
		t.Errorf("header is %q", got)
	}
	if len(lines) != 3 || !strings.HasSuffix(strings.Join(strings.Fields(lines[1]), " "), " prog386 1 setregid32 rgid=2 egid=2 -1") {
		t.Errorf("rows: %q", lines[1:])
	}
}
