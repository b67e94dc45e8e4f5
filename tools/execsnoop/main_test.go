package execsnoop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// variantEnv makes the test binary call exec in the given way.
const variantEnv = "EXECSNOOP_TEST_VARIANT"

func TestMain(m *testing.M) {
	if variant := os.Getenv(variantEnv); variant != "" {
		fmt.Fprintln(os.Stderr, variant, execVariants()[variant](os.Args[1:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// execVariants end in an exec of argv, whose first element is the file, or return its error.
func execVariants() map[string]func(argv []string) error {
	return map[string]func([]string) error{
		"fexecve":   func(argv []string) error { return execAt(argv[0], "", argv, unix.AT_EMPTY_PATH) },
		"execveat":  func(argv []string) error { return execAt(filepath.Dir(argv[0]), filepath.Base(argv[0]), argv, 0) },
		"thread":    execByThread,
		"wait":      execOnInput,
		"unlimited": execUnlimited,
		"cold":      execCold,
	}
}

func execAt(dir, path string, argv []string, flags int) error {
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		return err
	}
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return err
	}
	var none [1]*byte
	_, _, errno := unix.Syscall6(unix.SYS_EXECVEAT, uintptr(fd), pointer(path), uintptr(unsafe.Pointer(&args[0])),
		uintptr(unsafe.Pointer(&none[0])), uintptr(flags), 0)
	return errno
}

func pointer(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		return 0
	}
	return uintptr(unsafe.Pointer(p))
}

// execByThread calls exec from a thread that is not the leader.
func execByThread(argv []string) error {
	failed := make(chan error)
	var try func()
	try = func() {
		runtime.LockOSThread()
		if unix.Gettid() != os.Getpid() {
			failed <- syscall.Exec(argv[0], argv, nil)
		}
		go try()
		select {} // keeps the leader blocked
	}
	go try()
	return <-failed
}

// execOnInput reports that it is ready, waits for a byte, and calls exec.
func execOnInput(argv []string) error {
	os.Stdout.WriteString(".")
	os.Stdin.Read(make([]byte, 1))
	return syscall.Exec(argv[0], argv, nil)
}

// execUnlimited adds the number of arguments in argv[1], each of 100 KiB.
func execUnlimited(argv []string) error {
	n, err := strconv.Atoi(argv[1])
	if err != nil {
		return err
	}
	none := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Setrlimit(unix.RLIMIT_STACK, &none); err != nil {
		return err
	}
	return syscall.Exec(argv[0], append(argv, long(n, 100<<10)...), nil)
}

// execCold fails; its second argument is in memory that was never accessed.
func execCold(argv []string) error {
	f, err := os.CreateTemp("", "cold")
	if err != nil {
		return err
	}
	os.Remove(f.Name())
	f.WriteString("cold\x00")
	page, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return err
	}
	args[1] = &page[0]
	_, _, errno := unix.Syscall(unix.SYS_EXECVE, pointer(argv[0]), uintptr(unsafe.Pointer(&args[0])), 0)
	runtime.KeepAlive(args)
	return errno
}

// long returns n different arguments of the given length, including the NUL byte.
func long(n, size int) []string {
	args := make([]string, n)
	for i := range args {
		head := strconv.Itoa(i) + ":"
		args[i] = (head + strings.Repeat("0123456789abcdef\x1b\xff", size/18+1))[:size-1]
	}
	return args
}

// by returns a command that runs the test binary, which calls exec in this way.
func by(t *testing.T, variant string, argv ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, argv...)
	cmd.Env = []string{variantEnv + "=" + variant}
	return cmd
}

// program creates an executable that exits immediately. Any user may execute it.
func program(t *testing.T, name string) string {
	t.Helper()
	exit := map[string]struct {
		machine uint16
		code    []byte
	}{
		"amd64": {62, []byte{0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05}},                   // xor edi, edi; mov eax, exit; syscall
		"arm64": {183, []byte{0, 0, 0x80, 0xd2, 0xa8, 0x0b, 0x80, 0xd2, 0x01, 0, 0, 0xd4}}, // mov x0, 0; mov x8, exit; svc 0
	}[runtime.GOARCH]
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(exit.code))
	b := bytes.NewBuffer([]byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	for _, field := range []any{
		uint16(2), exit.machine, uint32(1), uint64(base + headers), uint64(64), uint64(0), // ET_EXEC
		uint32(0), uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x10000), // PT_LOAD
	} {
		binary.Write(b, binary.LittleEndian, field)
	}
	b.Write(exit.code)
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}
