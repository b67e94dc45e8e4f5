package readahead

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore stores for each page of the mapping whether it is in the page cache.
func mincore(m, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
