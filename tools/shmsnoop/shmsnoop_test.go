package shmsnoop

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

const (
	size  = 12345
	getAs = unix.IPC_CREAT | unix.IPC_EXCL | 0o640
)

// call makes a system call, and returns its result or -errno.
func call(nr uintptr, args ...uintptr) int {
	var a [3]uintptr
	copy(a[:], args)
	r, _, errno := unix.Syscall(nr, a[0], a[1], a[2])
	if errno != 0 {
		return -int(errno)
	}
	return int(r)
}

func check(t *testing.T, r tooltest.Row, want map[string]any) {
	t.Helper()
	for key, v := range want {
		if n, ok := v.(int); ok {
			v = float64(n)
		}
		if r[key] != v {
			t.Errorf("%s: %s is %v, want %v", r["syscall"], key, r[key], v)
		}
	}
}

// TestCalls makes each call once with success, and some that fail.
func TestCalls(t *testing.T) {
	var id, at, missing int
	res := tooltest.JSON(t, Tool, []string{"--pid", strconv.Itoa(os.Getpid())}, func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		id = call(unix.SYS_SHMGET, 0, size, getAs)
		at = call(unix.SYS_SHMAT, uintptr(id), 0, unix.SHM_RDONLY)
		call(unix.SYS_SHMDT, uintptr(at))
		call(unix.SYS_SHMDT, uintptr(at))
		call(unix.SYS_SHMCTL, uintptr(id), unix.IPC_RMID, 0)
		missing = call(unix.SYS_SHMAT, uintptr(id), 0x7000, 0)
		call(unix.SYS_SHMAT, ^uintptr(0), 0, 0)
		call(unix.SYS_SHMGET, 77, 0, unix.IPC_CREAT|0o4000|21<<26)
		call(unix.SYS_SHMGET, 77, 0, unix.IPC_CREAT|0o4000|30<<26|0o600)
		call(unix.SYS_SHMGET, 77, 0, unix.IPC_CREAT|0o4000)
		call(unix.SYS_SHMGET, 77, 0, 21<<26) // without SHM_HUGETLB it is no size
	})
	if id < 0 || at < 0 || len(res.Events) != 11 {
		t.Fatalf("segment %d at %#x, %d rows: %v", id, at, len(res.Events), res.Events)
	}
	address := fmt.Sprintf("%#x", at)
	for i, want := range []map[string]any{
		{"syscall": "SHMGET", "ret": id, "shm_id": id, "shm_key": "0x0", "size_bytes": size, "flags": "IPC_CREAT|IPC_EXCL|0640", "error": nil, "command": nil, "pid": os.Getpid()},
		{"syscall": "SHMAT", "ret": at, "shm_id": id, "address": address, "flags": "SHM_RDONLY", "error": nil, "size_bytes": nil},
		{"syscall": "SHMDT", "ret": 0, "address": address, "error": nil, "shm_id": nil},
		{"syscall": "SHMDT", "ret": -int(unix.EINVAL), "address": address, "error": "EINVAL"},
		{"syscall": "SHMCTL", "ret": 0, "shm_id": id, "command": "IPC_RMID", "error": nil},
		{"syscall": "SHMAT", "ret": missing, "error": unix.ErrnoName(unix.Errno(-missing)), "address": "0x7000", "flags": "0"},
		{"syscall": "SHMAT", "ret": -int(unix.EINVAL), "shm_id": -1, "address": nil},
		{"syscall": "SHMGET", "error": "EINVAL", "flags": "IPC_CREAT|SHM_HUGETLB|SHM_HUGE_2MB", "shm_id": nil},
		{"syscall": "SHMGET", "error": "EINVAL", "flags": "IPC_CREAT|SHM_HUGETLB|SHM_HUGE_1GB|0600"},
		{"syscall": "SHMGET", "error": "EINVAL", "flags": "IPC_CREAT|SHM_HUGETLB"},
		{"syscall": "SHMGET", "error": "ENOENT", "flags": "012400000000"},
	} {
		check(t, res.Events[i], want)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

// TestCompat makes the calls of a 32-bit task through ipc(2) and, from kernel 5.1 on, directly.
func TestCompat(t *testing.T) {
	tooltest.Root(t)
	const ipc, shmget, shmctl = 117, 395, 396
	id := call(unix.SYS_SHMGET, 0, size, getAs)
	if id < 0 {
		t.Fatalf("shmget: %d", id)
	}
	defer call(unix.SYS_SHMCTL, uintptr(id), unix.IPC_RMID, 0)
	prog := tooltest.I386(t, make([]byte, 4), func(data uint32) []byte {
		code := binary.LittleEndian.AppendUint32([]byte{0xbe}, data)            // mov esi, data
		code = binary.LittleEndian.AppendUint32(append(code, 0xbf), 0x20000000) // mov edi, 0x20000000
		code = append(code, tooltest.Call386(ipc, 21, uint32(id), unix.SHM_RDONLY)...)
		code = append(code, tooltest.Call386(ipc, 22)...)
		code = append(code, tooltest.Call386(shmget, 0x1234, 0, 0)...)
		code = append(code, tooltest.Call386(ipc, 23, 0x4321, 0)...)
		code = append(code, tooltest.Call386(shmctl, 0x7ffffff0, 0, 0)...)
		return append(code, tooltest.Exit386()...)
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	if len(res.Events) != 5 {
		t.Fatalf("%d rows: %v", len(res.Events), res.Events)
	}
	for i, want := range []map[string]any{
		{"syscall": "SHMAT", "shm_id": id, "address": "0x20000000", "ret": 0x20000000, "error": nil, "flags": "SHM_RDONLY"},
		{"syscall": "SHMDT", "address": "0x20000000", "ret": 0, "error": nil},
		{"syscall": "SHMGET", "shm_key": "0x1234", "error": "ENOENT", "ret": -int(unix.ENOENT)},
		{"syscall": "SHMGET", "shm_key": "0x4321", "error": "ENOENT"},
		{"syscall": "SHMCTL", "shm_id": 0x7ffffff0, "command": "IPC_RMID", "error": "EINVAL"},
	} {
		check(t, res.Events[i], want)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	var id int
	out := tooltest.Text(t, Tool, []string{"-T", "-p", strconv.Itoa(os.Getpid()), "-n", "shmsnoop"}, func() {
		id = call(unix.SYS_SHMGET, 0, size, getAs)
		call(unix.SYS_SHMCTL, uintptr(id), unix.IPC_RMID, 0)
	})
	header, rows, _ := strings.Cut(out, "\n")
	if got := strings.Join(strings.Fields(header), " "); got != "TIME(s) PID COMM SYS RET ERROR ARGs" {
		t.Errorf("header %q", got)
	}
	if want := fmt.Sprintf("key: 0x0, size: %d, shmflg: 0x7a0 (IPC_CREAT|IPC_EXCL|0640)", size); strings.Count(rows, "\n") < 2 || !strings.Contains(rows, want) {
		t.Errorf("rows %q, want %q", rows, want)
	}
}
