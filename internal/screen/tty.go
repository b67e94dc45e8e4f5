package screen

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/gdamore/tcell/v2"
	"golang.org/x/sys/unix"
)

// tty is a terminal as tcell wants it. It is opened once, as a process that gave up its
// rights can not do that again, and not made the process's own.
type tty struct {
	f     *os.File
	saved *unix.Termios

	mu      sync.Mutex
	resized func()
	stop    func() // ends the wait for new sizes
}

// openTTY opens the terminal that is behind out anew, to read from it too.
func openTTY(out *os.File) (*tty, error) {
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", out.Fd()), os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	t := &tty{f: f}
	if t.saved, err = t.termios(); err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

// control calls an ioctl; File.Fd would make reads block for good.
func (t *tty) control(call func(fd int) error) error {
	conn, err := t.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("control terminal: %w", err)
	}
	var callErr error
	if err := conn.Control(func(fd uintptr) { callErr = call(int(fd)) }); err != nil {
		return fmt.Errorf("control terminal: %w", err)
	}
	return callErr
}

func (t *tty) termios() (mode *unix.Termios, err error) {
	err = t.control(func(fd int) (err error) {
		mode, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	})
	return mode, err
}

func (t *tty) set(mode *unix.Termios) error {
	return t.control(func(fd int) error { return unix.IoctlSetTermios(fd, unix.TCSETS, mode) })
}

// Start takes the terminal: each byte comes as it is, at once.
func (t *tty) Start() error {
	raw := *t.saved
	raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	raw.Oflag &^= unix.OPOST
	raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
	if err := t.set(&raw); err != nil {
		return fmt.Errorf("set up terminal: %w", err)
	}
	if err := t.f.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("set up terminal: %w", err)
	}
	t.watch()
	return nil
}

// watch waits for new sizes.
func (t *tty) watch() {
	signals, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, unix.SIGWINCH)
	t.stop = sync.OnceFunc(func() {
		signal.Stop(signals)
		close(done)
	})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-signals:
				t.mu.Lock()
				resized := t.resized
				t.mu.Unlock()
				if resized != nil {
					resized()
				}
			}
		}
	}()
}

// NotifyResize sets what is called when the terminal has a new size.
func (t *tty) NotifyResize(resized func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resized = resized
}

// Drain ends a read that waits.
func (t *tty) Drain() error { return t.f.SetReadDeadline(time.Now()) }

// Stop gives the terminal back as it was.
func (t *tty) Stop() error {
	t.stop()
	return t.set(t.saved)
}

// WindowSize is the terminal's size, 80 by 25 where it does not know.
func (t *tty) WindowSize() (tcell.WindowSize, error) {
	var size *unix.Winsize
	err := t.control(func(fd int) (err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil {
		return tcell.WindowSize{}, fmt.Errorf("read size of terminal: %w", err)
	}
	if size.Col == 0 || size.Row == 0 {
		return tcell.WindowSize{Width: 80, Height: 25}, nil
	}
	return tcell.WindowSize{Width: int(size.Col), Height: int(size.Row)}, nil
}

func (t *tty) Read(b []byte) (int, error)  { return t.f.Read(b) }
func (t *tty) Write(b []byte) (int, error) { return t.f.Write(b) }

// Close closes the file, and leaves the terminal alone.
func (t *tty) Close() error { return t.f.Close() }
