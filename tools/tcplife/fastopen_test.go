package tcplife

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestFastOpen connects with TCP_FASTOPEN_CONNECT: the duration starts at the SYN, which is sent
// with the first data, not at connect().
func TestFastOpen(t *testing.T) {
	var lport, rport, refusedPort int
	var most, mostRefused time.Duration
	var unsupported error
	res := tooltest.JSON(t, Tool, nil, func() {
		l := tcptest.Listen(t, "127.0.0.1:0")
		rport = tcptest.Port(l.Addr())
		var sent time.Time
		var done func() error
		lport, sent, done, unsupported = tcptest.FastOpen(t, rport)
		if unsupported != nil {
			return
		}
		server, err := l.AcceptTCP()
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := io.ReadFull(server, make([]byte, 4)); err != nil {
			t.Error(err)
		}
		if err := errors.Join(done(), server.Close(), tcptest.AwaitEnd(t.Context(), lport)); err != nil {
			t.Error(err)
		}
		most = time.Since(sent)
		refusedPort, mostRefused = refuse(t)
	})
	if errors.Is(unsupported, unix.EOPNOTSUPP) {
		t.Skip(unsupported)
	}
	if unsupported != nil {
		t.Fatal(unsupported)
	}
	p := tcptest.Pair{T: t, LPort: lport, RPort: rport}
	client, _ := p.Rows(res)
	within(t, "connected", tcptest.One(t, "connected", client), most)
	refused := res.Where(func(r tooltest.Row) bool { return int(r.Num("lport")) == refusedPort })
	// The kernel stores the time of the SYN in milliseconds.
	within(t, "refused", tcptest.One(t, "refused", refused), mostRefused+time.Millisecond)
}

// refuse connects to a port without a listener.
func refuse(t *testing.T) (lport int, most time.Duration) {
	lport, sent, done, err := tcptest.FastOpen(t, freePort(t))
	if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("send to a port without a listener: %v", err)
	}
	if done != nil {
		err = done()
	}
	if err := errors.Join(err, tcptest.AwaitEnd(context.Background(), lport)); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
		t.Error(err)
	}
	return lport, time.Since(sent)
}

func within(t *testing.T, what string, r tooltest.Row, most time.Duration) {
	t.Helper()
	if d := time.Duration(r.Num("duration_ns")); d <= 0 || d > most {
		t.Errorf("%s: duration since the SYN is %s, want at most %s", what, d, most)
	}
}
