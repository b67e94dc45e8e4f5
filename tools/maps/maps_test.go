package maps

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// needAreas skips the test on kernels before 5.12, which have no iterator for memory areas.
func needAreas(t *testing.T) {
	t.Helper()
	tooltest.Root(t)
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var iterator *btf.Func
	if err := types.TypeByName("bpf_iter_task_vma", &iterator); errors.Is(err, btf.ErrNotFound) {
		t.Skip("this kernel has no iterator of memory areas")
	}
}

// TestUnsupported checks the message on kernels that cannot list mappings.
func TestUnsupported(t *testing.T) {
	tooltest.Root(t)
	var errOut bytes.Buffer
	code := tool.Run(t.Context(), Tool, []string{"-p", "2"}, io.Discard, &errOut)
	if code != tool.ExitOK && (code != tool.ExitUnsupported || !strings.Contains(errOut.String(), "not supported by this kernel")) {
		t.Errorf("exit code %d: %s", code, &errOut)
	}
}

// waiting starts a program that only waits, and returns its process ID.
func waiting(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	// All its mappings exist once it answers.
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// line formats a row as in /proc/PID/maps.
func line(t *testing.T, r tooltest.Row) string {
	t.Helper()
	path := r.Bytes(t, "path")
	if r["deleted"] == true {
		path += " (deleted)"
	}
	end, _ := strconv.ParseUint(r.Str("end"), 0, 64)
	start, _ := strconv.ParseUint(r.Str("start"), 0, 64)
	if float64(end-start) != r.Num("size_bytes") {
		t.Errorf("size differs from end minus start: %v", r)
	}
	var major, minor int // 0 without a file
	if r.Has("device") {
		if _, err := fmt.Sscanf(r.Str("device"), "%d:%d", &major, &minor); err != nil {
			t.Errorf("device %q: %v", r.Str("device"), err)
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%08x-%08x %s %08x %02x:%02x %d %s",
		start, end, r.Str("perms"), int(r.Num("offset")), major, minor, int(r.Num("inode")), path))
}

// lines returns /proc/PID/maps with single spaces.
func lines(t *testing.T, pid int) []string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for text := range strings.Lines(string(b)) {
		if !strings.Contains(text, "[vsyscall]") {
			all = append(all, strings.Join(strings.Fields(text), " "))
		}
	}
	return all
}

// TestEveryArea compares all mappings of an idle process with /proc/PID/maps.
func TestEveryArea(t *testing.T) {
	needAreas(t)
	pid := waiting(t)
	want := lines(t, pid)
	for _, args := range [][]string{{"-p", strconv.Itoa(pid)}, {"-p", strconv.Itoa(pid), "-p", strconv.Itoa(pid)}} {
		var got []string
		for _, row := range tooltest.JSON(t, Tool, args, nil).Events {
			got = append(got, line(t, row))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if len(want) < 6 {
		t.Errorf("the process has only %d areas", len(want))
	}
}

// TestOwnAreas checks mappings of this process: shared with a removed file, writable and
// executable, named.
func TestOwnAreas(t *testing.T) {
	needAreas(t)
	f, err := os.Create(t.TempDir() + "/with \n")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 16); err != nil {
		t.Fatal(err)
	}
	shared := mapped(t, int(f.Fd()), 8192, 12288, unix.PROT_READ, unix.MAP_SHARED)
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	code := mapped(t, -1, 0, 16384, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	self := []string{"-p", strconv.Itoa(os.Getpid())}
	res := tooltest.JSON(t, Tool, self, nil)
	row := at(t, res, shared)
	if row.Str("perms") != "r--s" || row.Num("offset") != 8192 || row.Num("size_bytes") != 12288 ||
		row.Str("path") != f.Name() || row["deleted"] != true || row.Str("kind") != "file" {
		t.Errorf("shared area is %v", row)
	}
	res = tooltest.JSON(t, Tool, append(self, "-w"), nil)
	row = at(t, res, code)
	if row.Str("perms") != "rwxp" || row.Num("size_bytes") != 16384 || row.Num("inode") != 0 {
		t.Errorf("area of code is %v", row)
	}
	for _, row := range res.Events {
		if row.Str("perms")[1:3] != "wx" {
			t.Errorf("not writable and executable: %v", row)
		}
	}
	label := []byte("of corescope\x00")
	if err := unix.Prctl(unix.PR_SET_VMA, unix.PR_SET_VMA_ANON_NAME, uintptr(unsafe.Pointer(&code[0])), uintptr(len(code)),
		uintptr(unsafe.Pointer(&label[0]))); err != nil {
		t.Skipf("PR_SET_VMA_ANON_NAME is not supported: %v", err)
	}
	row = at(t, tooltest.JSON(t, Tool, self, nil), code)
	if row.Str("path") != "[anon:of corescope]" || row.Str("kind") != "named" {
		t.Errorf("named area is %v", row)
	}
}

// TestMemoryFiles checks that memory files without a directory entry are marked as deleted, as in
// /proc/PID/maps.
func TestMemoryFiles(t *testing.T) {
	needAreas(t)
	const size = 16384
	memfd, err := unix.MemfdCreate("of corescope", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memfd)
	if err := unix.Ftruncate(memfd, size); err != nil {
		t.Fatal(err)
	}
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, size, unix.IPC_CREAT|0o600)
	if err != nil {
		t.Fatal(err)
	}
	sysv, err := unix.SysvShmAttach(id, 0, 0)
	_, removeErr := unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	if err := errors.Join(err, removeErr); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SysvShmDetach(sysv) }()
	areas := map[string][]byte{
		"/memfd:of corescope": mapped(t, memfd, 0, size, unix.PROT_READ, unix.MAP_SHARED),
		"/dev/zero":           mapped(t, -1, 0, size, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANON),
		"/SYSV00000000":       sysv,
	}
	want := lines(t, os.Getpid())
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid())}, nil)
	for path, area := range areas {
		row := at(t, res, area)
		if got := line(t, row); row.Str("path") != path || !strings.HasSuffix(got, " (deleted)") || !slices.Contains(want, got) {
			t.Errorf("%s is %q, which is not in\n%s", path, got, strings.Join(want, "\n"))
		}
	}
}

// The device of a file in a btrfs subvolume is the one that stat(2) returns.
func TestSubvolume(t *testing.T) {
	needAreas(t)
	if !tooltest.InNamespaces(t, unix.CLONE_NEWNS) {
		return
	}
	dir := tooltest.NewMounts(t).MountBtrfs(t)
	tooltest.Subvolume(t, dir+"/one")
	f, err := os.Create(dir + "/one/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := errors.Join(f.Truncate(1<<14), unix.Fstat(int(f.Fd()), &st)); err != nil {
		t.Fatal(err)
	}
	if !tooltest.HasType(t, "btrfs", "btrfs_inode") {
		t.Skip("the kernel does not describe the types of btrfs, so devices are those of the file system")
	}
	area := mapped(t, int(f.Fd()), 0, 1<<14, unix.PROT_READ, unix.MAP_SHARED)
	row := at(t, tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid())}, nil), area)
	if want := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)); row.Str("device") != want || row.Num("inode") != float64(st.Ino) {
		t.Errorf("row %v, want device %s, inode %d", row, want, st.Ino)
	}
	if err := unix.Munmap(area); err != nil { // otherwise the file system cannot be unmounted
		t.Fatal(err)
	}
}

func mapped(t *testing.T, fd int, offset int64, size, prot, flags int) []byte {
	t.Helper()
	b, err := unix.Mmap(fd, offset, size, prot, flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func at(t *testing.T, res *tooltest.Result, area []byte) tooltest.Row {
	t.Helper()
	start := fmt.Sprintf("%#x", uintptr(unsafe.Pointer(&area[0])))
	rows := res.Where(func(r tooltest.Row) bool { return r.Str("start") == start })
	if len(rows) != 1 {
		t.Fatalf("%d areas begin at %s: %v", len(rows), start, rows)
	}
	return rows[0]
}

// TestEverybody checks that all processes are listed, and no mapping twice.
func TestEverybody(t *testing.T) {
	needAreas(t)
	pid := waiting(t)
	res := tooltest.JSON(t, Tool, nil, nil)
	seen := map[string]bool{}
	n := 0
	for _, row := range res.Events {
		key := fmt.Sprint(row["pid"], row["start"])
		if seen[key] {
			t.Errorf("listed twice: %v", row)
		}
		seen[key] = true
		if int(row.Num("pid")) == pid {
			n++
		}
	}
	if want := len(lines(t, pid)); n != want {
		t.Errorf("%d areas are listed of a process with %d", n, want)
	}
}

func TestText(t *testing.T) {
	needAreas(t)
	pid := strconv.Itoa(waiting(t))
	out := tooltest.Text(t, Tool, []string{"-p", pid, "--columns", "pid,perms,path", "--filter", "kind == 'stack'"}, nil)
	if got := strings.Join(strings.Fields(out), " "); got != "PID PERM PATH "+pid+" rw-p [stack]" {
		t.Errorf("got %q", out)
	}
	out = tooltest.Text(t, Tool, []string{"-p", pid, "--columns", "pid,kind", "--output", "csv", "--filter", "kind == 'heap'"}, nil)
	if !bytes.HasPrefix([]byte(out), []byte("pid,kind\n"+pid+",heap\n")) {
		t.Errorf("got %q", out)
	}
}
