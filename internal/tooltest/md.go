package tooltest

import (
	"fmt"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Definitions for md, from linux/raid/md_u.h.
const (
	mdSetArray = 0x40480923
	mdAddDisk  = 0x40140921
	mdRun      = 0x400c0930
	mdStop     = 0x932
)

// Striped creates an md disk that is striped over other disks. It skips the test if the kernel has no md.
func Striped(t testing.TB, paths ...string) (name string, disk *os.File) {
	t.Helper()
	// The number is not reused while the kernel is still removing the disk.
	name = fmt.Sprintf("md%d", 1000+time.Now().UnixNano()%100000)
	if err := os.WriteFile("/sys/module/md_mod/parameters/new_array", []byte(name), 0); err != nil {
		t.Skipf("no md: %v", err)
	}
	disk, err := os.OpenFile("/dev/"+name, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Skipf("no device nodes are created for disks: %v", err)
	}
	t.Cleanup(func() { disk.Close() })
	ioctl := func(req uint, arg unsafe.Pointer) {
		t.Helper()
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, disk.Fd(), uintptr(req), uintptr(arg)); errno != 0 {
			t.Fatalf("ioctl %#x: %v", req, errno)
		}
	}
	array := [18]int32{6: int32(len(paths)), 7: int32(len(paths)), 9: 1, 17: 64 << 10} // level 0, not persistent
	ioctl(mdSetArray, unsafe.Pointer(&array))
	t.Cleanup(func() { unix.Syscall(unix.SYS_IOCTL, disk.Fd(), mdStop, 0) })
	for i, path := range paths {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		member := [5]int32{int32(i), int32(unix.Major(st.Rdev)), int32(unix.Minor(st.Rdev)), int32(i), 1<<1 | 1<<2}
		ioctl(mdAddDisk, unsafe.Pointer(&member))
	}
	var params [3]int32
	ioctl(mdRun, unsafe.Pointer(&params))
	return name, disk
}
