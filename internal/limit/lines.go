package limit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine is the size of a line. The longest path in /proc/PID/maps is 16 KiB with its escapes. Most
// lines fit in usualBuffer; it is allocated for each process.
const usualBuffer, maxLine = 8 << 10, 64 << 10

// Lines calls yield with each line of r, without its newline, until yield returns false. It skips
// lines of more than 64 KiB and a last line without a newline. A line is valid until yield returns.
func Lines(r io.Reader, yield func(line []byte) bool) error {
	in := bufio.NewReaderSize(r, usualBuffer)
	isRest := false // the data continues a line that is skipped
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && in.Size() < maxLine:
			in = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(line)), in), maxLine)
			continue
		case errors.Is(err, bufio.ErrBufferFull):
			isRest = true
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if !isRest && !yield(line[:len(line)-1]) {
			return nil
		}
		isRest = false
	}
}
