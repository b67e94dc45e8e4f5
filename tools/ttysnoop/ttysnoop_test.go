package ttysnoop

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// helper tells a child of the test to write to its standard output.
const helper = "CORESCOPE_WRITE"

const long = 9000

func TestMain(m *testing.M) {
	if os.Getenv(helper) == "" {
		os.Exit(m.Run())
	}
	unix.Write(1, []byte("plain\n"))
	unix.Write(1, []byte("\x1b[2J\xff\x00\\"))
	unix.Writev(1, [][]byte{[]byte("one "), nil, []byte("two")})
	for b := bytes.Repeat([]byte("0123456789"), long/10); len(b) > 0; { // the kernel can write a part
		n, err := unix.Write(1, b)
		if err != nil {
			os.Exit(1)
		}
		b = b[n:]
	}
	unix.Write(1<<20, []byte("no such descriptor"))
	null, _ := unix.Open("/dev/null", unix.O_WRONLY, 0)
	unix.Write(null, []byte("no terminal"))
}

// terminal opens a pseudo terminal that does not change its output, and returns its path and a
// function that returns what arrived at the other end after the slave was closed.
func terminal(t *testing.T) (slave *os.File, output func() []byte) {
	t.Helper()
	tooltest.Root(t)
	master, slave := tooltest.PTY(t)
	fd := int(slave.Fd())
	termios, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	termios.Oflag, termios.Lflag = 0, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, termios); err != nil {
		t.Fatal(err)
	}
	done := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(master) // EIO after the last writer has closed the terminal
		done <- b
	}()
	return slave, func() []byte {
		slave.Close()
		return <-done
	}
}

// run starts the child on the terminal, and returns its PID.
func run(t *testing.T, slave *os.File) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"=1")
	cmd.Stdout = slave
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	return cmd.Process.Pid
}

func data(t *testing.T, r tooltest.Row) []byte {
	t.Helper()
	if r.Has("data_base64") {
		b, err := base64.StdEncoding.DecodeString(r.Str("data_base64"))
		if err != nil {
			t.Error(err)
		}
		return b
	}
	return []byte(r.Str("data"))
}

// TestBytes compares the rows with what arrived at the terminal.
func TestBytes(t *testing.T) {
	slave, output := terminal(t)
	name := strings.TrimPrefix(slave.Name(), "/dev/")
	var st unix.Stat_t
	if err := unix.Fstat(int(slave.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	var pid int
	var want []byte
	res := tooltest.JSON(t, Tool, []string{slave.Name(), "-s", "1000"}, func() {
		pid = run(t, slave)
		want = output()
	})
	var got []byte
	var offset, rows int
	for i, r := range res.Events {
		part := data(t, r)
		got = append(got, part...)
		if int(r.Num("pid")) != pid || r.Str("tty") != name || r.Num("missing_bytes") != 0 || len(part) > 1000 ||
			r.Str("device") != fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev)) {
			t.Errorf("row %d: %v", i, r)
		}
		if offset += len(part); offset == int(r.Num("bytes")) {
			offset = 0
			rows++
		}
	}
	if !bytes.Equal(got, want) || offset != 0 || rows < 4 {
		t.Errorf("got %d bytes of %d calls, %q, want %d, %q", len(got), rows, got, len(want), want)
	}
	if !bytes.HasPrefix(want, []byte("plain\n\x1b[2J\xff\x00\\one two0123")) {
		t.Errorf("the terminal got %q", want)
	}
}

// TestMissing expects that what is not shown is counted.
func TestMissing(t *testing.T) {
	slave, output := terminal(t)
	number := filepath.Base(slave.Name())
	var want []byte
	res := tooltest.JSON(t, Tool, []string{number, "-s", "5", "-c", "2"}, func() {
		run(t, slave)
		want = output()
	})
	var got int
	for _, r := range res.Events {
		part := data(t, r)
		if got += len(part) + int(r.Num("missing_bytes")); len(part) > 0 && r.Num("missing_bytes") > 0 {
			t.Errorf("row %v", r)
		}
	}
	if got != len(want) || len(res.Events) < 8 {
		t.Errorf("%d rows with %d bytes, want %d", len(res.Events), got, len(want))
	}
}

// TestOthers expects nothing of another terminal, and of this process.
func TestOthers(t *testing.T) {
	slave, output := terminal(t)
	other, _ := terminal(t)
	res := tooltest.JSON(t, Tool, []string{other.Name()}, func() {
		run(t, slave)
		other.WriteString("of this process")
		output()
	})
	if len(res.Events) != 0 {
		t.Errorf("rows %v, want none", res.Events)
	}
}

func TestCompat(t *testing.T) {
	slave, output := terminal(t)
	text := []byte("compat")
	// After the text: two struct iovec, for 2 and 4 bytes of it.
	prog := tooltest.I386(t, append(text, make([]byte, 18)...), func(at uint32) []byte {
		store := func(addr, v uint32) []byte { // mov dword [addr], v
			b := []byte{0xc7, 0x05}
			for _, n := range []uint32{addr, v} {
				b = append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
			}
			return b
		}
		var code []byte
		for i, v := range []uint32{at, 2, at + 2, 4} {
			code = append(code, store(at+8+4*uint32(i), v)...)
		}
		code = append(code, tooltest.Call386(4, 1, at, 6)...)
		code = append(code, tooltest.Call386(146, 1, at+8, 2)...)
		return append(code, tooltest.Exit386()...)
	})
	res := tooltest.JSON(t, Tool, []string{slave.Name()}, func() {
		cmd := exec.Command(prog)
		cmd.Stdout = slave
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		if got := output(); string(got) != "compatcompat" {
			t.Errorf("the terminal got %q", got)
		}
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Str("syscall"), " ", r.Num("bytes"), " ", r.Num("offset"), " ", r.Str("data")))
	}
	if fmt.Sprint(got) != "[write 6 0 compat writev 6 0 co writev 6 2 mpat]" {
		t.Errorf("rows %q", got)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	slave, output := terminal(t)
	var pid int
	text := tooltest.Text(t, Tool, []string{slave.Name(), "-C"}, func() {
		pid = run(t, slave)
		output()
	})
	lines := strings.Split(text, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME TTY PID COMM BYTES DATA" {
		t.Errorf("header %q", got)
	}
	if !strings.Contains(lines[1], strconv.Itoa(pid)) || !strings.HasSuffix(lines[1], ` plain\n`) || !strings.HasSuffix(lines[2], ` \x1b[2J\xff\x00\\`) {
		t.Errorf("rows %q", lines[1:3])
	}
}

func TestDevice(t *testing.T) {
	for _, device := range []string{"/dev/tty", "/none", "/proc/self/exe", "/dev/null", "/dev/ptmx"} {
		tooltest.Fails(t, Tool, []string{device}, 2, device)
	}
}
