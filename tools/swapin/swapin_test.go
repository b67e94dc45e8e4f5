package swapin

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// touchEnv makes the test binary write to more memory than the limit of its cgroup, twice.
const touchEnv = "CORESCOPE_TOUCH"

const (
	limit = 32 << 20
	size  = 64 << 20
	swap  = 96 << 20
)

func TestMain(m *testing.M) {
	if os.Getenv(touchEnv) == "" {
		os.Exit(m.Run())
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	for range 2 {
		for at := 0; at < size; at += os.Getpagesize() {
			memory[at]++
		}
	}
}

// addSwap adds swap space in a file on a disk. Swap space in memory, as on a loop device over a memfd,
// can make the kernel wait for ever when it has no memory to swap.
func addSwap(t *testing.T) {
	t.Helper()
	file := swapFile(t)
	path, err := unix.BytePtrFromString(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(path)), 0, 0)
	if errno == unix.EINVAL { // the file is valid, so its file system has no swap files
		var fs unix.Statfs_t
		if err := unix.Fstatfs(int(file.Fd()), &fs); err != nil {
			t.Fatal(err)
		}
		t.Skipf("the file system of %s (type %#x) supports no swap file", file.Name(), fs.Type)
	}
	if errno != 0 {
		t.Fatalf("swapon: %v", errno)
	}
	t.Cleanup(func() { unix.Syscall(unix.SYS_SWAPOFF, uintptr(unsafe.Pointer(path)), 0, 0) })
}

// swapFile creates a file for swap space, without holes, on the file system of /var/tmp: /tmp is often
// in memory. It is removed when the test ends.
func swapFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.CreateTemp("/var/tmp", "corescope-swap-") // only for its owner, as swapon demands
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		file.Close()
		os.Remove(file.Name())
	})
	const noCopyOnWrite = 0x00800000                                                         // FS_NOCOW_FL
	if flags, err := unix.IoctlGetUint32(int(file.Fd()), unix.FS_IOC_GETFLAGS); err == nil { // for btrfs
		_ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, int(flags|noCopyOnWrite))
	}
	page := os.Getpagesize()
	header := make([]byte, page)
	binary.NativeEndian.PutUint32(header[1024:], 1)                   // version
	binary.NativeEndian.PutUint32(header[1028:], uint32(swap/page-1)) // last page
	copy(header[page-10:], "SWAPSPACE2")
	if _, err := file.Write(append(header, make([]byte, swap-page)...)); err != nil {
		t.Fatal(err)
	}
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	return file
}

// swapIns returns the kernel's count of pages that were read from swap. Since 6.12 (0ca0c24e3211) it does
// not store pages that are zero, and counts them separately (e7ac4daeed91).
func swapIns(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "pswpin" || name == "swpin_zero" {
			pages, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			n += pages
		}
	}
	return n
}

// touch runs a process that swaps, and returns its PID.
func touch(t *testing.T, dir string) int {
	t.Helper()
	cmd := tooltest.InCgroup(dir, os.Args[0])
	cmd.Env = append(os.Environ(), touchEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("touch memory: %v: %s", err, out)
	}
	return cmd.Process.Pid
}

// place returns a cgroup whose limit requires swap.
func place(t *testing.T, name string) string {
	t.Helper()
	tooltest.KernelFunctions(t)
	if on, _ := os.ReadFile("/sys/module/zswap/parameters/enabled"); strings.HasPrefix(string(on), "Y") {
		t.Skip("zswap is enabled, so that the kernel's own count is lower")
	}
	addSwap(t)
	dir, _ := tooltest.MemoryCgroup(t, name, limit)
	for name, unlimited := range map[string]string{"memory.swap.max": "max", "memory.memsw.limit_in_bytes": "-1"} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err != nil {
			continue // of the other cgroup version
		}
		if err := os.WriteFile(file, []byte(unlimited), 0); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSwap compares with the kernel's counts of pages that were read from swap.
func TestSwap(t *testing.T) {
	dir := place(t, "corescope-swapin")
	var pid, begin, end int
	before := swapIns(t)
	res := tooltest.JSON(t, Tool, []string{"60"}, func() {
		begin = swapIns(t)
		pid = touch(t, dir)
		end = swapIns(t)
	})
	var all, own float64
	for _, r := range res.Rows {
		all += r.Num("count")
		if int(r.Num("pid")) == pid {
			own += r.Num("count")
		}
	}
	// Other processes can read pages back before and after the load.
	least, most := end-begin, swapIns(t)-before
	t.Logf("%v swap-ins, %v of them by the process; the kernel counts %d to %d", all, own, least, most)
	if int(all) < least || int(all) > most || own < (size-limit)/float64(os.Getpagesize())/2 {
		t.Errorf("%v swap-ins, %v of them by the process; the kernel counts %d to %d", all, own, least, most)
	}
	if lost := tooltest.Lost(res.Summary); lost != 0 {
		t.Errorf("%d lost", lost)
	}
}

func TestText(t *testing.T) {
	dir := place(t, "corescope-swapin-text")
	out := tooltest.Text(t, Tool, []string{"-T", "60"}, func() { touch(t, dir) })
	_, table, _ := strings.Cut(out, "\n") // the first line is the time of the table
	header, rows, _ := strings.Cut(table, "\n")
	if strings.Join(strings.Fields(header), " ") != "COMM PID COUNT" || rows == "" {
		t.Errorf("%q", out)
	}
}
