package native

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// JIT is a JIT compiler that writes a perf map: it creates functions at run time, each in a page of
// its own, and runs them in this process.
type JIT struct {
	perfMap *os.File
	pages   []byte // for the next functions
}

// NewJIT creates the perf map of this process.
func NewJIT() (*JIT, error) {
	f, err := os.Create(PerfMap(os.Getpid()))
	if err != nil {
		return nil, err
	}
	return &JIT{perfMap: f}, nil
}

// PerfMap returns the path of the perf map of a process.
func PerfMap(pid int) string { return fmt.Sprintf("/tmp/perf-%d.map", pid) }

// Run creates a function that spins for a number of iterations, writes its name to the perf map, and
// then calls it.
func (j *JIT) Run(name string, iterations uint32) error {
	page, err := j.page()
	if err != nil {
		return err
	}
	size := copy(page, spinCode(iterations))
	// The change of the protection also synchronizes the caches of instructions and data.
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return err
	}
	start := uintptr(unsafe.Pointer(&page[0]))
	if _, err := fmt.Fprintf(j.perfMap, "%x %x %s\n", start, size, name); err != nil {
		return err
	}
	call(start, new([7]uint64), 0, new([2]uint64), 0)
	return nil
}

// page returns a page that has not been used before. Pages are never unmapped, so that no two
// functions have the same address.
func (j *JIT) page() (page []byte, err error) {
	const atOnce = 256
	size := os.Getpagesize()
	if len(j.pages) == 0 {
		j.pages, err = unix.Mmap(-1, 0, atOnce*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, err
		}
	}
	page, j.pages = j.pages[:size:size], j.pages[size:]
	return page, nil
}
