package tooltest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Peer is a tool of libbpf-tools that runs at the same time as the tested tool.
type Peer struct {
	cmd  *exec.Cmd
	out  bytes.Buffer
	mu   sync.Mutex
	more chan struct{} // new output
	done chan struct{} // closed at the end of output
}

// StartPeer starts NAME-libbpf from PATH, or from the root directory CORESCOPE_PEERS (see
// test/peers/install.sh). It skips the test if the tool is not installed.
func StartPeer(t testing.TB, name string, args ...string) *Peer {
	t.Helper()
	Root(t)
	p := &Peer{more: make(chan struct{}, 1), done: make(chan struct{})}
	p.cmd = peerCommand(t, name+"-libbpf", args)
	// Output to a terminal is line-buffered.
	master, slave := PTY(t)
	p.cmd.Stdout, p.cmd.Stderr = slave, slave
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	go p.read(master)
	t.Cleanup(func() { p.cmd.Process.Kill() })
	return p
}

// PeerCommand returns a command that runs in the root directory of the peers, so that it uses the
// libraries that peers attach to. Without CORESCOPE_PEERS it runs on the machine.
func PeerCommand(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	return peerCommand(t, name, args)
}

func peerCommand(t testing.TB, name string, args []string) *exec.Cmd {
	t.Helper()
	tree := os.Getenv("CORESCOPE_PEERS")
	if tree == "" {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("the peer is not installed: %v", err)
		}
		return exec.Command(path, args...)
	}
	_, file, _, _ := runtime.Caller(0)
	run := filepath.Join(filepath.Dir(file), "../../test/peers/run.sh")
	return exec.Command(run, append([]string{tree, name}, args...)...)
}

// PTY opens a pseudo terminal.
func PTY(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

func (p *Peer) read(from *os.File) {
	defer close(p.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		p.out.Write(buf[:n])
		p.mu.Unlock()
		select {
		case p.more <- struct{}{}:
		default:
		}
		if err != nil { // EIO after the last writer has closed the terminal
			return
		}
	}
}

func (p *Peer) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.ReplaceAll(p.out.String(), "\r\n", "\n")
}

// Await calls trigger repeatedly until the peer has printed text. This shows that the peer is
// ready, because these tools do not report it. trigger can be nil.
func (p *Peer) Await(t testing.TB, text string, trigger func()) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(deadline)
	for !strings.Contains(p.output(), text) {
		if trigger != nil {
			trigger()
		}
		select {
		case <-p.more:
		case <-ticker.C:
		case <-p.done:
			t.Fatalf("peer exited before it printed %q: %s", text, p.output())
		case <-timeout:
			t.Fatalf("peer has not printed %q within %v: %s", text, deadline, p.output())
		}
	}
}

// Stop interrupts the peer with SIGINT and returns all lines that it printed.
func (p *Peer) Stop(t testing.TB) []string {
	t.Helper()
	if err := p.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait()
	<-p.done
	return strings.Split(p.output(), "\n")
}
