package tcppktlat

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestMain(m *testing.M) { tcptest.Main(m, nil) }

// await waits until the client has received n bytes that are not read, according to the kernel.
func await(p *tcptest.Pair, n int) {
	raw, err := p.Client.SyscallConn()
	p.Check(err)
	p.Check(raw.Control(func(fd uintptr) {
		for p.T.Context().Err() == nil {
			if unread, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err != nil || unread >= n {
				p.Check(err)
				return
			}
		}
	}))
}

// write sends n bytes in a segment of its own, and returns when the client has received it.
func write(p *tcptest.Pair, n, unread int) {
	_, err := p.Server.Write(make([]byte, n))
	p.Check(err)
	await(p, unread+n)
}

func read(p *tcptest.Pair, n int) {
	_, err := p.Client.Read(make([]byte, n))
	p.Check(err)
}

// TestLatency compares the latency with times taken before and after it. Every second segment waits.
func TestLatency(t *testing.T) {
	const n, wait = 10, 20 * time.Millisecond
	for _, addr := range []string{"127.0.0.1", "::1"} {
		p := tcptest.Connect(t, tcptest.Listen(t, "["+addr+"]:0"), addr, 0)
		var least, most []time.Duration
		res := tooltest.JSON(t, Tool, []string{"-l", strconv.Itoa(p.LPort)}, func() {
			for i := range n {
				begin := time.Now()
				write(p, 7, 0)
				received := time.Now()
				time.Sleep(wait * time.Duration(i%2))
				least = append(least, time.Since(received))
				read(p, 100)
				most = append(most, time.Since(begin))
			}
		})
		if len(res.Events) != n {
			t.Fatalf("%d rows of %d reads: %v", len(res.Events), n, res.Events)
		}
		for i, r := range res.Events {
			tcptest.Fields(t, "read", r, map[string]any{
				"pid": os.Getpid(), "comm": tcptest.Comm(), "laddr": addr, "raddr": addr, "rport": p.RPort, "segments": 1,
			})
			if d := time.Duration(r.Num("latency_ns")); d < least[i] || d > most[i] {
				t.Errorf("read %d: latency %s, want at least %s and at most %s", i, d, least[i], most[i])
			}
		}
	}
}

// TestSegments reads in other sizes than those of the segments, and peeks.
func TestSegments(t *testing.T) {
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	res := tooltest.JSON(t, Tool, []string{"-l", strconv.Itoa(p.LPort)}, func() {
		for i := range 5 {
			write(p, 10, 10*i)
		}
		raw, err := p.Client.SyscallConn()
		p.Check(err)
		p.Check(raw.Control(func(fd uintptr) {
			_, _, err = unix.Recvfrom(int(fd), make([]byte, 50), unix.MSG_PEEK)
		}))
		p.Check(err)
		read(p, 5)  // begins the first segment
		read(p, 5)  // ends it
		read(p, 21) // ends the third, and begins the fourth
		read(p, 9)
		read(p, 100)
	})
	rows, segments := 0, 0
	var last float64
	for _, r := range res.Events {
		rows, segments = rows+1, segments+int(r.Num("segments"))
		last = r.Num("segments")
	}
	// The kernel can have merged segments of the queue, so that a read has a row for several.
	if segments != 5 || rows < 3 || last != 1 {
		t.Errorf("%d segments in %d rows, want 5: %v", segments, rows, res.Events)
	}
}

// TestUnread leaves segments unread: more than the tool keeps, and until the socket is destroyed.
func TestUnread(t *testing.T) {
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	res := tooltest.JSON(t, Tool, []string{"-l", strconv.Itoa(p.LPort)}, func() {
		for i := range 70 {
			write(p, 1, i)
		}
		p.Check(p.Client.Close())
		p.Check(p.Server.Close())
		p.AwaitEnd()
	})
	tcptest.Fields(t, "summary", res.Summary.Object("counters"), map[string]any{"crowded": 6, "unread": 64})
	if len(res.Events) > 0 {
		t.Errorf("rows of data that was not read: %v", res.Events)
	}
}

// TestFilters reads two segments, of which one has waited.
func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	me := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"-p", me}, 2}, {[]string{"-p", "1"}, 0}, {[]string{"1h"}, 0}, {[]string{"20000"}, 1},
		{[]string{"-6"}, 0}, {[]string{"-r", strconv.Itoa(p.LPort)}, 0}, {[]string{"-r", strconv.Itoa(p.RPort)}, 2},
	} {
		res := tooltest.JSON(t, Tool, append(c.args, "--filter", "lport == "+strconv.Itoa(p.LPort)), func() {
			write(p, 1, 0)
			read(p, 1)
			write(p, 1, 0)
			time.Sleep(20 * time.Millisecond)
			read(p, 1)
		})
		// On a busy machine, the first segment can wait that long too.
		if n := len(res.Events); n != c.want && !(c.want == 1 && n == 2) {
			t.Errorf("%q: %d rows, want %d", c.args, n, c.want)
		}
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	p := tcptest.Connect(t, tcptest.Listen(t, "127.0.0.1:0"), "127.0.0.1", 0)
	out := tooltest.Text(t, Tool, []string{"-T", "-l", strconv.Itoa(p.LPort)}, func() {
		write(p, 1, 0)
		read(p, 1)
	})
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME PID TID COMM LADDR LPORT RADDR RPORT MS" || len(lines) != 2 {
		t.Errorf("text is %q", out)
	}
}
