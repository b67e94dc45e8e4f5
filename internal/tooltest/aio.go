package tooltest

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// iocb is struct iocb of linux/aio_abi.h.
type iocb struct {
	Data     uint64
	Key      uint32
	Flags    uint32
	Opcode   uint16
	Priority int16
	FD       uint32
	Buf      uint64
	Bytes    uint64
	Offset   int64
	_        [2]uint64
}

// ioEvent is struct io_event.
type ioEvent struct {
	Data, Obj uint64
	Res, Res2 int64
}

// AIORead reads n bytes at the start of a file with io_submit(2), and waits for completion.
func AIORead(fd, n int) (int64, error) {
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(buf)
	return aio(1, &iocb{FD: uint32(fd), Buf: uint64(uintptr(unsafe.Pointer(&buf[0]))), Bytes: uint64(n)})
}

// AIOFsync syncs a file n times with io_submit(2), one after the other. The kernel queues a work for
// each, with the function aio_fsync_work.
func AIOFsync(fd, n int) error {
	const fsync = 2 // IOCB_CMD_FSYNC
	res, err := aio(n, &iocb{FD: uint32(fd), Opcode: fsync})
	if err == nil && res < 0 {
		err = fmt.Errorf("fsync: %w", unix.Errno(-res))
	}
	return err
}

// aio submits c n times, each time waits for completion, and returns the last result.
func aio(n int, c *iocb) (res int64, err error) {
	var ring uintptr
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&ring)), 0); errno != 0 {
		return 0, fmt.Errorf("io_setup: %w", errno)
	}
	defer unix.Syscall(unix.SYS_IO_DESTROY, ring, 0, 0)
	for ; n > 0; n-- {
		if _, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, ring, 1, uintptr(unsafe.Pointer(&c))); errno != 0 {
			return 0, fmt.Errorf("io_submit: %w", errno)
		}
		for done := false; !done; {
			var e ioEvent
			_, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, ring, 1, 1, uintptr(unsafe.Pointer(&e)), 0, 0)
			switch errno {
			case 0:
				res, done = e.Res, true
			case unix.EINTR:
			default:
				return 0, fmt.Errorf("io_getevents: %w", errno)
			}
		}
	}
	return res, nil
}
