package faults

import (
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	diskSize  = 8 << 20
	diskBlock = 4096
)

// loopDisk creates a loop device backed by memory and returns its path.
func loopDisk(t testing.TB) string {
	t.Helper()
	control, err := unix.Open("/dev/loop-control", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("cannot open /dev/loop-control: %v", err)
	}
	defer unix.Close(control)
	back, err := unix.MemfdCreate("disk", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(back)
	if err := unix.Ftruncate(back, diskSize); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := unix.IoctlRetInt(control, unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatal(err)
		}
		path := "/dev/loop" + strconv.Itoa(n)
		if err := configureLoop(t, path, back); err == nil {
			return path
		} else if err != unix.EBUSY { // EBUSY: another process took the device
			t.Fatalf("create loop device %s: %v", path, err)
		}
	}
}

func configureLoop(t testing.TB, path string, back int) error {
	t.Helper()
	dev, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	config := unix.LoopConfig{Fd: uint32(back), Size: diskBlock}
	if err := unix.IoctlLoopConfigure(dev, &config); err != nil {
		unix.Close(dev)
		return err
	}
	t.Cleanup(func() {
		unix.IoctlRetInt(dev, unix.LOOP_CLR_FD)
		unix.Close(dev)
	})
	return nil
}
