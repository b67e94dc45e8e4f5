// Package native generates libraries for live tests of uprobes and USDT probes, and calls their
// functions with the C calling convention. The test sets the arguments and the return value of each
// call, so it knows the expected events and needs neither a real library nor a compiler.
package native

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Library is an ELF file that is mapped into this process.
type Library struct {
	Path  string
	image image
	text  []byte
	data  []byte
}

// Probe is a USDT probe as of sys/sdt.h. Its location is the entry of Function.
type Probe struct {
	Function       string
	Provider, Name string
	// Args are the arguments in assembler syntax: "8@%rdi -4@%esi".
	Args string
	// Semaphore gives the probe a semaphore, which counts the tracers that use it.
	Semaphore bool
}

// Choice is a function with several implementations (IFUNC). The dynamic loader would call Resolver
// to select one. In tests, Choose selects it.
type Choice struct{ Name, Resolver string }

// OpenChoices generates a library with IFUNC functions, and maps it until the test ends.
func OpenChoices(t testing.TB, name string, functions []string, choices ...Choice) *Library {
	t.Helper()
	l := &Library{Path: filepath.Join(t.TempDir(), name), image: image{functions: functions, choices: choices}}
	if err := os.WriteFile(l.Path, l.image.bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	l.Map(t)
	return l
}

// Choose selects a function as the implementation of the choice with the given index, as the loader
// does.
func (l *Library) Choose(choice int, function string) {
	*(*uintptr)(unsafe.Pointer(&l.data[slotOffset+8*choice])) = l.addr(function)
}

// Call describes a call of a function. The caller must keep memory alive that arguments point to.
type Call struct {
	Args  [7]uint64
	Ret   uint64
	Sleep time.Duration
	// Inner is a function of the library that the function calls, with the same arguments and
	// return value.
	Inner string
}

// Open generates a library with the functions and probes, and maps it until the test ends. name is
// its file name.
func Open(t testing.TB, name string, functions []string, probes ...Probe) *Library {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	l := Write(t, path, functions, probes...)
	l.Map(t)
	return l
}

// Write generates a library at path without mapping it.
func Write(t testing.TB, path string, functions []string, probes ...Probe) *Library {
	t.Helper()
	l := &Library{Path: path, image: image{functions: functions, probes: probes}}
	if err := os.WriteFile(path, l.image.bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return l
}

// Map maps the library from its path, as the dynamic loader does, until the test ends.
func (l *Library) Map(t testing.TB) {
	t.Helper()
	if err := l.Load(l.image.functions...); err != nil {
		t.Fatal(err)
	}
	start := unsafe.Pointer(&l.text[0])
	t.Cleanup(func() { unix.MunmapPtr(start, 2*partSize) })
}

// Load permanently maps a library with these functions, which another process can have generated.
func (l *Library) Load(functions ...string) error {
	l.image.functions = functions
	f, err := os.Open(l.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	// Reserves the addresses, so that code and data have the distance that the file defines.
	start, err := unix.MmapPtr(-1, 0, nil, 2*partSize, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	if l.text, err = mapPart(f, textOffset, start, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return err
	}
	l.data, err = mapPart(f, dataOffset, unsafe.Add(start, dataOffset-textOffset), unix.PROT_READ|unix.PROT_WRITE)
	return err
}

func mapPart(f *os.File, offset int64, addr unsafe.Pointer, prot int) ([]byte, error) {
	if _, err := unix.MmapPtr(int(f.Fd()), offset, addr, partSize, prot, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(addr), partSize), nil
}

// Semaphore returns the value of the semaphore of the probe with the given index.
func (l *Library) Semaphore(probe int) uint16 { return *(*uint16)(unsafe.Pointer(&l.data[8*probe])) }

// Call calls the function. It panics if the library has no such function.
func (l *Library) Call(function string, c Call) uint64 {
	// The called code has no safe points, so the stack of this goroutine does not move.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer blockPreemption()()
	sleep := [2]uint64{uint64(c.Sleep / time.Second), uint64(c.Sleep % time.Second)}
	var inner uintptr
	if c.Inner != "" {
		inner = l.addr(c.Inner)
	}
	return call(l.addr(function), &c.Args, c.Ret, &sleep, inner)
}

// blockPreemption blocks the Go runtime's preemption signal in this thread until restore is called.
// During a garbage collection the signal comes every few microseconds. A probe takes longer, so the
// thread would hit the same probe again after each signal and never get past it.
func blockPreemption() (restore func()) {
	var set, old unix.Sigset_t
	set.Val[0] = 1 << (unix.SIGURG - 1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
		panic(err)
	}
	return func() {
		if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
			panic(err)
		}
	}
}

func (l *Library) addr(function string) uintptr {
	i := slices.Index(l.image.functions, function)
	if i < 0 {
		panic("the library has no function " + function)
	}
	return uintptr(unsafe.Pointer(&l.text[codeSize*i]))
}

// call calls fn with the arguments as in the C calling convention. fn calls inner, sleeps and
// returns val.
//
//go:noescape
func call(fn uintptr, args *[7]uint64, val uint64, sleep *[2]uint64, inner uintptr) uint64

// Text returns a C string. It stays allocated, at the same address, while the pointer is in use.
func Text(s string) *byte { return &append([]byte(s), 0)[0] }

// Pointer converts a pointer to an argument of a call. The memory is on the heap.
func Pointer[T any](p *T) uint64 {
	heap.Store((*byte)(unsafe.Pointer(p)))
	return uint64(uintptr(unsafe.Pointer(p)))
}

// heap receives the pointers, so that the compiler allocates their memory on the heap: a stack can
// move before the call.
var heap atomic.Pointer[byte]
