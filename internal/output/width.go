package output

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Width returns the number of columns of the terminal w, or 0 if w is not a terminal.
func Width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}
