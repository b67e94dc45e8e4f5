package undump

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func me() string { return strconv.Itoa(os.Getpid()) }

func pair(t testing.TB) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func send(t testing.TB, fd int, text string) {
	t.Helper()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestCalls receives with each call.
func TestCalls(t *testing.T) {
	a, b := pair(t)
	buf := make([]byte, 100)
	calls := []func() (int, error){
		func() (int, error) { return unix.Read(b, buf) },
		func() (int, error) { return unix.Readv(b, [][]byte{buf[:4], buf[4:]}) },
		func() (int, error) { n, _, err := unix.Recvfrom(b, buf, 0); return n, err },
		func() (int, error) { n, _, _, _, err := unix.Recvmsg(b, buf, nil, 0); return n, err },
		func() (int, error) { n, _, err := unix.Recvfrom(b, buf[:5], unix.MSG_TRUNC); return n, err },
	}
	text := func(i int) string { return fmt.Sprintf("data %d\x00\xff", i) }
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		for i, call := range calls {
			send(t, a, text(i))
			if n, err := call(); n != len(text(i)) || err != nil {
				t.Errorf("call %d: %d, %v", i, n, err)
			}
		}
		unix.Recvfrom(b, buf, unix.MSG_DONTWAIT) // fails
	})
	if len(res.Events) != len(calls) {
		t.Fatalf("%d rows, want %d: %v", len(res.Events), len(calls), res.Events)
	}
	for i, r := range res.Events {
		want := text(i)
		if i == 4 {
			want = want[:5]
		}
		if got := r.Bytes(t, "data"); got != want {
			t.Errorf("call %d: data %q, want %q", i, got, want)
		}
		tcptest.Fields(t, fmt.Sprint("call ", i), r, map[string]any{
			"bytes": len(text(i)), "fd": b, "truncated": want != text(i), "pid": os.Getpid(), "comm": tcptest.Comm(),
		})
	}
}

// TestBuffers receives into several buffers: all are shown, up to the eighth.
func TestBuffers(t *testing.T) {
	a, b := pair(t)
	buffers := func(n int) (all [][]byte) {
		for range n {
			all = append(all, make([]byte, 3))
		}
		return all
	}
	const text = "aaabbbcccdddeeefffggghhhiiijjj"
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		for _, n := range []int{2, 8, 10} {
			send(t, a, text[:3*n])
			if got, err := unix.Readv(b, buffers(n)); got != 3*n || err != nil {
				t.Errorf("readv: %d, %v", got, err)
			}
			send(t, a, text[:3*n])
			if got, _, _, _, err := unix.RecvmsgBuffers(b, buffers(n), nil, 0); got != 3*n || err != nil {
				t.Errorf("recvmsg: %d, %v", got, err)
			}
		}
	})
	for i, want := range []string{text[:6], text[:6], text[:24], text[:24], text[:24], text[:24]} {
		if i >= len(res.Events) {
			t.Fatalf("%d rows, want 6", len(res.Events))
		}
		if r := res.Events[i]; r.Bytes(t, "data") != want || r["truncated"] != (i >= 4) {
			t.Errorf("call %d: %v, want %q", i, r, want)
		}
	}
}

// TestMessages receives several messages with one call.
func TestMessages(t *testing.T) {
	type message struct {
		header unix.Msghdr
		size   uint32
	}
	a, b := pair(t)
	const sent = 10
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		messages, vectors, buffers := make([]message, sent), make([]unix.Iovec, sent), make([][8]byte, sent)
		for i := range sent {
			send(t, a, fmt.Sprint("no ", i))
			vectors[i].Base = &buffers[i][0]
			vectors[i].SetLen(len(buffers[i]))
			messages[i].header.Iov = &vectors[i]
			messages[i].header.SetIovlen(1)
		}
		n, _, errno := unix.Syscall6(unix.SYS_RECVMMSG, uintptr(b), uintptr(unsafe.Pointer(&messages[0])), sent, 0, 0, 0)
		if n != sent {
			t.Errorf("recvmmsg: %d, %v", n, errno)
		}
		runtime.KeepAlive(vectors)
	})
	if len(res.Events) != 8 || tooltest.Lost(res.Summary) != 2 {
		t.Fatalf("%d rows and %d lost, want 8 and 2: %v", len(res.Events), tooltest.Lost(res.Summary), res.Events)
	}
	for i, r := range res.Events {
		if want := fmt.Sprint("no ", i); r.Bytes(t, "data") != want || r.Num("bytes") != float64(len(want)) {
			t.Errorf("message %d: %v, want %q", i, r, want)
		}
	}
}

// TestMaximum limits the data, also to nothing.
func TestMaximum(t *testing.T) {
	a, b := pair(t)
	for _, most := range []int{0, 10, 4096} {
		res := tooltest.JSON(t, Tool, []string{"-p", me(), "--max-buffer-size", strconv.Itoa(most)}, func() {
			send(t, a, strings.Repeat("x", 5000))
			unix.Read(b, make([]byte, 8192))
		})
		r := tcptest.One(t, "read", res.Events)
		if r.Str("data") != strings.Repeat("x", most) || r.Num("bytes") != 5000 || r["truncated"] != true || r.Has("data") != (most > 0) {
			t.Errorf("maximum %d: %v", most, r)
		}
	}
}

// TestOther reads from a pipe and a TCP socket: neither is shown.
func TestOther(t *testing.T) {
	res := tooltest.JSON(t, Tool, []string{"-p", me()}, func() {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		send(t, fds[1], "pipe")
		unix.Read(fds[0], make([]byte, 10))
		unix.Close(fds[0])
		unix.Close(fds[1])
		p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
		p.Send(p.Client, p.Server, 10)
	})
	if len(res.Events) != 0 {
		t.Errorf("rows %v", res.Events)
	}
}

// TestCompat receives in a 32-bit program with socketcall (recv).
func TestCompat(t *testing.T) {
	const size = 32
	args := make([]byte, 16+size)
	prog := tooltest.I386(t, args, func(at uint32) []byte {
		var code []byte
		for i, word := range []uint32{3, at + 16, size, 0} {
			code = binary.LittleEndian.AppendUint32(append(code, 0xc7, 0x05), at+4*uint32(i)) // mov dword [at], word
			code = binary.LittleEndian.AppendUint32(code, word)
		}
		return append(append(code, tooltest.Call386(102, 10, at)...), tooltest.Exit386()...)
	})
	a, b := pair(t)
	dup, err := unix.Dup(b)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(dup), "socket")
	defer file.Close()
	child := exec.Command(prog)
	child.ExtraFiles = []*os.File{file}
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		send(t, a, "to 32 bits")
		_ = child.Run()
	})
	rows := res.Where(func(r tooltest.Row) bool { return int(r.Num("pid")) == child.Process.Pid })
	tcptest.Fields(t, "recv", tcptest.One(t, "recv", rows), map[string]any{"data": "to 32 bits", "bytes": 10, "fd": 3, "truncated": false})
}

func TestText(t *testing.T) {
	a, b := pair(t)
	out := tooltest.Text(t, Tool, []string{"-p", me()}, func() {
		send(t, a, "escape\x1b[0m")
		unix.Read(b, make([]byte, 100))
	})
	lines := strings.Split(out, "\n")
	if strings.Join(strings.Fields(lines[0]), " ") != "TIME COMM PID SIZE DATA" || strings.Contains(out, "\x1b") || !strings.Contains(lines[1], " 10 escape") {
		t.Errorf("%q", out)
	}
}
