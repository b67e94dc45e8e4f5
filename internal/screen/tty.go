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

// tty implements tcell.Tty. The terminal is opened only once, because a process that has
// dropped its privileges cannot open it again, and does not become the controlling
// terminal.
type tty struct {
	f     *os.File
	saved *unix.Termios

	mu      sync.Mutex
	resized func()
	stop    func() // ends watch
}

// openTTY reopens the terminal that out refers to for reading and writing.
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

// control calls an ioctl. It avoids File.Fd, which switches the file to blocking mode.
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

// Start switches the terminal to raw mode.
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

// watch reports changes of the window size until stop is called.
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

// NotifyResize sets the function that is called when the window size changes.
func (t *tty) NotifyResize(resized func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resized = resized
}

// Drain interrupts a blocked Read.
func (t *tty) Drain() error { return t.f.SetReadDeadline(time.Now()) }

// Stop restores the terminal mode.
func (t *tty) Stop() error {
	t.stop()
	return t.set(t.saved)
}

// WindowSize returns the size of the terminal, or 80 by 25 if it reports none.
func (t *tty) WindowSize() (tcell.WindowSize, error) {
	var size *unix.Winsize
	err := t.control(func(fd int) (err error) {
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		return err
	})
	if err != nil {
		return tcell.WindowSize{}, fmt.Errorf("read terminal size: %w", err)
	}
	if size.Col == 0 || size.Row == 0 {
		return tcell.WindowSize{Width: 80, Height: 25}, nil
	}
	return tcell.WindowSize{Width: int(size.Col), Height: int(size.Row)}, nil
}

func (t *tty) Read(b []byte) (int, error)  { return t.f.Read(b) }
func (t *tty) Write(b []byte) (int, error) { return t.f.Write(b) }

// Close closes the file without changing the terminal mode.
func (t *tty) Close() error { return t.f.Close() }
