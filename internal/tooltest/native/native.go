// Package native makes libraries for live tests of programs that are attached in user
// space, and calls their functions with C's calling convention. What a function is called
// with and returns is the test's to say. So such tests know the answer, and need neither
// the real library nor a compiler.
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

// Probe is one that is built in, in the way of sys/sdt.h. It is where a function of the
// library begins.
type Probe struct {
	Function       string
	Provider, Name string
	// Args is as the assembler writes it: "8@%rdi -4@%esi".
	Args string
	// Semaphore makes it one that counts who looks at it.
	Semaphore bool
}

// Choice is a function of which the library has several implementations (IFUNC): the loader would have the function
// Resolver choose one. Here Choose does.
type Choice struct{ Name, Resolver string }

// OpenChoices makes a library with such functions, and maps it until the test ends.
func OpenChoices(t testing.TB, name string, functions []string, choices ...Choice) *Library {
	t.Helper()
	l := &Library{Path: filepath.Join(t.TempDir(), name), image: image{functions: functions, choices: choices}}
	if err := os.WriteFile(l.Path, l.image.bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	l.Map(t)
	return l
}

// Choose makes a function the implementation of the choice that has the number, as the loader does.
func (l *Library) Choose(choice int, function string) {
	*(*uintptr)(unsafe.Pointer(&l.data[slotOffset+8*choice])) = l.addr(function)
}

// Call is what a function is called with and does. What its arguments point to has to be
// kept alive by the caller.
type Call struct {
	Args  [7]uint64
	Ret   uint64
	Sleep time.Duration
	// Inner is a function of the library that is called from within, with the same
	// arguments, and that returns the same.
	Inner string
}

// Open makes a library of that file name, with the functions, and maps it until the test ends.
func Open(t testing.TB, name string, functions []string, probes ...Probe) *Library {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	l := Write(t, path, functions, probes...)
	l.Map(t)
	return l
}

// Write makes a library that is not mapped yet.
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

// Load maps a library that another process has made, of these functions, for good.
func (l *Library) Load(functions ...string) error {
	l.image.functions = functions
	f, err := os.Open(l.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	// Both parts are as far from each other as the file says.
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

func mapPart(f *os.File, offset int64, at unsafe.Pointer, prot int) ([]byte, error) {
	if _, err := unix.MmapPtr(int(f.Fd()), offset, at, partSize, prot, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(at), partSize), nil
}

// Semaphore is how many look at the probe that has the number.
func (l *Library) Semaphore(probe int) uint16 { return *(*uint16)(unsafe.Pointer(&l.data[8*probe])) }

// Call calls the function. It panics for one that the library does not have.
func (l *Library) Call(function string, c Call) uint64 {
	// This goroutine is at no safe point in there, so its stack does not move.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unpreempted()()
	sleep := [2]uint64{uint64(c.Sleep / time.Second), uint64(c.Sleep % time.Second)}
	var inner uintptr
	if c.Inner != "" {
		inner = l.addr(c.Inner)
	}
	return call(l.addr(function), &c.Args, c.Ret, &sleep, inner)
}

// unpreempted keeps the runtime's signals from this thread until its result is called. They
// come every few microseconds while garbage is collected, and a probe takes longer: the
// thread would go back to where it is for ever.
func unpreempted() func() {
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

// call calls fn with the arguments in C's places. fn calls inner, sleeps and returns val.
//
//go:noescape
func call(fn uintptr, args *[7]uint64, val uint64, sleep *[2]uint64, inner uintptr) uint64

// Text is a C string that stays where it is while the pointer is held.
func Text(s string) *byte { return &append([]byte(s), 0)[0] }

// Pointer is what C is given for a pointer.
func Pointer[T any](p *T) uint64 {
	heap.Store((*byte)(unsafe.Pointer(p)))
	return uint64(uintptr(unsafe.Pointer(p)))
}

// heap is where the compiler sees pointers go, so that nothing they point to is on a
// stack: that might move before the call.
var heap atomic.Pointer[byte]
