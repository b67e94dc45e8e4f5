package fsslower

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// byFunctions reports whether the functions of file systems are traced, not system calls.
func byFunctions(res *tooltest.Result) bool {
	return slices.ContainsFunc(res.Ready.List("hooks"), func(hook string) bool { return strings.HasPrefix(hook, "function: ") })
}

// timed is an operation with its duration as measured by the caller.
type timed struct {
	op   string
	took time.Duration
}

func open(t testing.TB, path string, flags int) int {
	t.Helper()
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Errorf("open %s: %v", path, err)
	}
	return fd
}

// operate does each operation once; those with an offset at 8192.
func operate(t testing.TB, path string) (all []timed) {
	var fd int
	buf := make([]byte, 3000)
	var st unix.Stat_t
	for _, o := range []struct {
		op string
		do func() error
	}{
		{"open", func() (err error) { fd, err = unix.Open(path, unix.O_RDWR, 0); return err }},
		{"read", func() error { _, err := unix.Pread(fd, buf, 8192); return err }},
		{"write", func() error { _, err := unix.Pwrite(fd, buf[:2000], 8192); return err }},
		{"fsync", func() error { return unix.Fsync(fd) }},
		{"getattr", func() error { return unix.Fstat(fd, &st) }},
	} {
		begin := time.Now()
		if err := o.do(); err != nil {
			t.Errorf("%s: %v", o.op, err)
		}
		all = append(all, timed{o.op, time.Since(begin)})
	}
	unix.Close(fd)
	return all
}

// TestOperations delays each operation in turn and expects a row for it, with a time between the
// delay and the duration measured by the caller.
func TestOperations(t *testing.T) {
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	const slow = 60 * time.Millisecond
	var seen []timed
	res := tooltest.JSON(t, Tool, append(self(), "-m", "60", "-t", "fuse"), func() {
		for _, op := range []string{"open", "read", "write", "fsync", "getattr"} {
			f.Set(func(called string, size int) (time.Duration, unix.Errno, int) {
				if called == op {
					return slow, 0, size
				}
				return 0, 0, size
			})
			seen = append(seen, operate(t, f.File)...)
		}
	})
	for _, op := range []string{"open", "read", "write", "fsync", "getattr"} {
		var most time.Duration
		n := 0
		for _, s := range seen {
			if s.op == op && s.took >= slow { // one was delayed, others may be slow by chance
				n, most = n+1, max(most, s.took)
			}
		}
		checkRows(t, res, f, op, n, slow, most)
	}
}

func checkRows(t *testing.T, res *tooltest.Result, f *tooltest.FUSE, op string, n int, least, most time.Duration) {
	t.Helper()
	rows := res.Where(func(r tooltest.Row) bool { return r.Str("operation") == op })
	if op == "getattr" && !byFunctions(res) {
		if len(rows) > 0 {
			t.Errorf("getattr with hook syscall: %v", rows)
		}
		return
	}
	if len(rows) == 0 || len(rows) > n {
		t.Fatalf("%s: rows %v, want 1 to %d", op, res.Events, n)
	}
	r := rows[0]
	if ns := time.Duration(r.Num("latency_ns")); ns < least || ns > most {
		t.Errorf("%s took %v, want %v to %v", op, ns, least, most)
	}
	if r.Str("fs") != "fuse" || r.Str("file") != tooltest.FUSEFileName || r.Str("path") != f.Path || r.Has("error") {
		t.Errorf("row %v, want the file %s", r, f.Path)
	}
	want := map[string][2]float64{"read": {3000, 8192}, "write": {2000, 8192}}
	bytes, isData := want[op]
	if r.Has("bytes") != isData || r.Has("offset_bytes") != isData || r.Num("bytes") != bytes[0] || r.Num("offset_bytes") != bytes[1] {
		t.Errorf("%s: bytes %v at %v, want %v", op, r["bytes"], r["offset_bytes"], bytes)
	}
}

// TestPartsAndErrors does reads and writes that are short or fail.
func TestPartsAndErrors(t *testing.T) {
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	f.Set(func(op string, size int) (time.Duration, unix.Errno, int) {
		switch {
		case op == "read" && size == 4096:
			return 0, 0, 100
		case op == "read":
			return 0, unix.EIO, 0
		case op == "write":
			return 0, unix.ENOSPC, 0
		case op == "fsync":
			return 0, unix.EIO, 0
		}
		return 0, 0, size
	})
	res := tooltest.JSON(t, Tool, append(self(), "-m", "0", "-t", "fuse"), func() {
		fd := open(t, f.File, unix.O_RDWR)
		unix.Read(fd, make([]byte, 4096)) // 100 bytes: the next read is at offset 100
		unix.Read(fd, make([]byte, 50))
		unix.Write(fd, make([]byte, 50))
		unix.Fsync(fd)
		unix.Close(fd)
	})
	var got []string
	for _, r := range res.Where(func(r tooltest.Row) bool { return r.Str("operation") != "getattr" }) {
		got = append(got, fmt.Sprint(r.Str("operation"), " ", r["bytes"], " ", r["offset_bytes"], " ", r["error"]))
	}
	want := []string{
		"open <nil> <nil> <nil>", "read 100 0 <nil>", "read <nil> 100 EIO", "write <nil> 100 ENOSPC", "fsync <nil> <nil> EIO",
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

// TestClosed replaces the descriptor during a read: the file of a system call is then unknown, that
// of a function is known.
func TestClosed(t *testing.T) {
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	begun, end := make(chan bool), make(chan bool)
	f.Set(func(op string, size int) (time.Duration, unix.Errno, int) {
		if op == "read" {
			begun <- true
			<-end
		}
		return 0, 0, size
	})
	res := tooltest.JSON(t, Tool, append(self(), "-m", "0", "-t", "fuse"), func() {
		fd, other := open(t, f.File, unix.O_RDWR), open(t, "/proc/self/status", unix.O_RDONLY)
		done := make(chan bool)
		go func() { unix.Read(fd, make([]byte, 10)); close(done) }()
		<-begun
		if err := unix.Dup3(other, fd, unix.O_CLOEXEC); err != nil {
			t.Error(err)
		}
		close(end)
		<-done
		unix.Close(fd)
		unix.Close(other)
	})
	rows := res.Where(func(r tooltest.Row) bool {
		return r.Str("operation") == "read" && r.Str("file") == tooltest.FUSEFileName
	})
	closed := res.Summary.Object("counters").Num("closed")
	if byFunctions(res) != (len(rows) == 1) || byFunctions(res) != (closed == 0) || len(rows) > 1 || closed > 1 {
		t.Errorf("rows %v, closed %v", rows, closed)
	}
}

// TestQueued submits reads by AIO to a file system that completes them later: the functions return
// when the reads are queued, which is counted and not shown.
func TestQueued(t *testing.T) {
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	f.Set(func(op string, size int) (time.Duration, unix.Errno, int) {
		if op == "read" {
			return 20 * time.Millisecond, 0, size
		}
		return 0, 0, size
	})
	const n = 3
	res := tooltest.JSON(t, Tool, append(self(), "-m", "0", "-t", "fuse", "--operation", "read"), func() {
		fd := open(t, f.File, unix.O_RDONLY|unix.O_DIRECT)
		for range n {
			if got, err := tooltest.AIORead(fd, 4096); got != 4096 || err != nil {
				t.Errorf("read by AIO: %d, %v", got, err)
			}
		}
		unix.Close(fd)
	})
	queued := res.Summary.Object("counters").Num("queued")
	want := map[bool]float64{true: n, false: 0}[byFunctions(res)]
	if queued != want || len(res.Events) > 0 {
		t.Errorf("queued %v, want %v, and rows %v", queued, want, res.Events)
	}
}

// TestPeer compares with fsslower of libbpf-tools.
func TestPeer(t *testing.T) {
	tooltest.AnyAttachType(t)
	if ready := tooltest.JSON(t, Tool, append(self(), "-t", "fuse"), func() {}); !byFunctions(ready) {
		tooltest.KernelFunctions(t) // the peer has no other hook
		if !tooltest.Forced() {
			t.Fatalf("the kernel has functions to attach to, the tool attached to %v", ready.Ready["hooks"])
		}
		t.Skipf("another hook than the peer's is forced: %v", ready.Ready["hooks"])
	}
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	f.Set(func(_ string, size int) (time.Duration, unix.Errno, int) { return 20 * time.Millisecond, 0, size })
	peer := tooltest.StartPeer(t, "fsslower", "-t", "fuse", "-m", "1", "-p", strconv.Itoa(os.Getpid()))
	peer.Await(t, tooltest.FUSEFileName, func() { operate(t, f.File) })
	res := tooltest.JSON(t, Tool, append(self(), "-m", "1", "-t", "fuse"), func() { operate(t, f.File) })
	lines := peer.Stop(t)
	for _, r := range res.Where(func(r tooltest.Row) bool { return r.Str("operation") != "getattr" }) {
		letter := strings.ToUpper(r.Str("operation")[:1])
		if !slices.ContainsFunc(lines, func(line string) bool { return isOperation(line, letter, r.Num("latency_ns")/1e6) }) {
			t.Errorf("the peer lacks %v: %q", r, lines)
		}
	}
}

// isOperation reports whether a line of the peer, TIME COMM PID T BYTES OFF_KB LAT FILENAME, is of
// this operation and latency in ms, within the difference between the programs of the two tools.
func isOperation(line, letter string, ms float64) bool {
	fields := strings.Fields(line)
	if len(fields) < 8 || fields[3] != letter {
		return false
	}
	got, err := strconv.ParseFloat(fields[6], 64)
	return err == nil && math.Abs(got-ms) < 1
}

// TestCounts checks exact counts of operations on one file of a loop device, and that other types
// are excluded.
func TestCounts(t *testing.T) {
	m := tooltest.NewMounts(t)
	dir := m.MountExt4(t)
	path := filepath.Join(m.At(dir), "counted")
	const n = 50
	res := tooltest.JSON(t, Tool, append(self(), "-m", "0", "-t", "ext4"), func() {
		fd := open(t, path, unix.O_RDWR|unix.O_CREAT|unix.O_APPEND)
		for i := range n {
			unix.Write(fd, make([]byte, 100+i))
		}
		unix.Seek(fd, 0, 0)
		for range n {
			unix.Read(fd, make([]byte, 64))
		}
		unix.Fsync(fd)
		unix.Close(fd)
		os.ReadFile("/proc/self/status")
	})
	counts, bytes := map[string]int{}, map[string]float64{}
	end := 0.
	for _, r := range res.Where(func(r tooltest.Row) bool { return r.Str("file") == "counted" }) {
		op := r.Str("operation")
		counts[op]++
		bytes[op] += r.Num("bytes")
		if op == "write" {
			if r.Num("offset_bytes") != end {
				t.Errorf("write at %v, want %v, the end of the file", r["offset_bytes"], end)
			}
			end += r.Num("bytes")
		}
	}
	delete(counts, "getattr")
	if want := map[string]int{"open": 1, "write": n, "read": n, "fsync": 1}; fmt.Sprint(counts) != fmt.Sprint(want) {
		t.Errorf("counts %v, want %v", counts, want)
	}
	if bytes["write"] != 100*n+n*(n-1)/2 || bytes["read"] != 64*n {
		t.Errorf("bytes %v", bytes)
	}
	if others := res.Where(func(r tooltest.Row) bool { return r.Str("fs") != "ext4" }); len(others) > 0 {
		t.Errorf("of other types: %v", others)
	}
}

// TestFrozen freezes a file system: a write waits in the virtual file system before the function of
// the file system, so it is slow as a system call, but not as a function.
func TestFrozen(t *testing.T) {
	m := tooltest.NewMounts(t)
	dir := m.MountExt4(t)
	at := open(t, m.At(dir), unix.O_RDONLY)
	const frozen = 40 * time.Millisecond
	var least, most time.Duration
	res := tooltest.JSON(t, Tool, append(self(), "-m", "20", "-t", "ext4"), func() {
		fd := open(t, filepath.Join(m.At(dir), "frozen"), unix.O_RDWR|unix.O_CREAT)
		ioctl(t, at, fiFreeze)
		tid, took := make(chan int), make(chan time.Duration)
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			tid <- unix.Gettid()
			begin := time.Now()
			unix.Write(fd, make([]byte, 10))
			took <- time.Since(begin)
		}()
		awaitBlocked(t, <-tid)
		begin := time.Now()
		time.Sleep(frozen)
		least = time.Since(begin)
		ioctl(t, at, fiThaw)
		most = <-took
		unix.Close(fd)
	})
	unix.Close(at)
	rows := res.Where(func(r tooltest.Row) bool { return r.Str("operation") == "write" })
	if byFunctions(res) {
		if len(rows) > 0 {
			t.Errorf("rows %v of a function that is not called yet", rows)
		}
		return
	}
	if len(rows) != 1 {
		t.Fatalf("rows %v", res.Events)
	}
	if ns := time.Duration(rows[0].Num("latency_ns")); ns < least || ns > most {
		t.Errorf("the write took %v, want %v to %v", ns, least, most)
	}
}

const fiFreeze, fiThaw = 0xc0045877, 0xc0045878

func ioctl(t testing.TB, fd int, request uint) {
	t.Helper()
	if err := unix.IoctlSetInt(fd, request, 0); err != nil {
		t.Error(err)
	}
}

// awaitBlocked waits until a thread is in uninterruptible sleep.
func awaitBlocked(t testing.TB, tid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "D") {
			return
		}
	}
	t.Error("the thread is not in uninterruptible sleep")
}

// TestOverlay reads a file on overlayfs: by functions both file systems are shown, nested; by
// system call only the upper one.
func TestOverlay(t *testing.T) {
	m := tooltest.NewMounts(t)
	lower := m.MountExt4(t)
	if err := os.WriteFile(filepath.Join(m.At(lower), "both"), make([]byte, 500), 0o600); err != nil {
		t.Fatal(err)
	}
	kinds, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(kinds), "\toverlay\n") {
		t.Skip("overlayfs is unavailable")
	}
	upper := m.Mount(t, "overlay", "overlay", "lowerdir="+lower+":"+t.TempDir())
	res := tooltest.JSON(t, Tool, append(self(), "-m", "0", "-t", "overlay,ext4"), func() {
		fd := open(t, filepath.Join(m.At(upper), "both"), unix.O_RDONLY)
		unix.Read(fd, make([]byte, 300))
		unix.Close(fd)
	})
	ns := map[string]float64{}
	for _, r := range res.Where(func(r tooltest.Row) bool { return r.Str("operation") == "read" && r.Str("file") == "both" }) {
		if r.Num("bytes") != 300 || r.Num("offset_bytes") != 0 || ns[r.Str("fs")] != 0 {
			t.Errorf("row %v", r)
		}
		ns[r.Str("fs")] = r.Num("latency_ns")
	}
	if ns["overlay"] == 0 || byFunctions(res) != (ns["ext4"] > 0) || ns["ext4"] >= ns["overlay"] {
		t.Errorf("times %v, by functions %v", ns, byFunctions(res))
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	f := tooltest.NewFUSE(t, tooltest.NewMounts(t))
	load := func() { operate(t, f.File) }
	text := tooltest.Text(t, Tool, append(self(), "-m", "0", "-t", "fuse"), load)
	if !strings.HasPrefix(text, "TIME     COMM             PID     T BYTES   OFF_KB   LAT(ms) FILENAME\n") {
		t.Errorf("header: %s", text)
	}
	if !strings.Contains(text, " R 3000    8 ") || !strings.Contains(text, " F -       - ") {
		t.Errorf("rows: %s", text)
	}
	text = tooltest.Text(t, Tool.As("fuseslower"), append(self(), "0", "-c"), load)
	if !strings.HasPrefix(text, "time,") || !strings.Contains(text, ",R,") || strings.Contains(text, "proc") {
		t.Errorf("CSV: %s", text)
	}
}
