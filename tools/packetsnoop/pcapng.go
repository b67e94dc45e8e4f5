package packetsnoop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
)

// Numbers of draft-ietf-opsawg-pcapng.
const (
	blockSection    = 0x0a0d0d0a
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6

	byteOrderMagic = 0x1a2b3c4d
	unknownLength  = ^uint64(0)

	optComment        = 1
	optOS             = 3 // of a section
	optApplication    = 4
	optName           = 2 // of an interface
	optDescription    = 3
	optResolution     = 9
	optFlags          = 2 // of a packet
	optReceived       = 4 // of statistics
	optDropped        = 5
	nanoseconds       = 9
	batch             = 64 << 10
	captureMode       = 0o600 // the file has the contents of packets of all users
	captureFlags      = unix.O_WRONLY | unix.O_CREAT | unix.O_TRUNC | unix.O_CLOEXEC
	standardOutput    = "-"
	refuseTerminal    = "it is a terminal, and pcapng is binary: write to a file, or to a pipe as in '-w - | tshark -r -'"
	applicationPrefix = "corescope "
)

// link is an interface as the file describes it: packets of one device with different starts belong
// to two of them.
type link struct {
	netns, index uint32
	name         string
	kind         uint8
}

// pcapng writes rows as a pcapng file.
type pcapng struct {
	path    string
	snaplen uint32
	row     *row
	env     *tool.Env

	out     io.Writer
	closer  io.Closer
	buf     []byte
	ids     map[link]uint32
	packets []uint64 // by interface
}

// Open creates the file and writes its first block, so that a run without packets is valid too.
func (w *pcapng) Open(s *tool.Session) error {
	if f := s.Out.Format(); f == "csv" || f == "json" && w.path == standardOutput {
		return fmt.Errorf("write packets to %s: there are no rows for --output %s", w.path, f)
	}
	if w.path == standardOutput {
		if s.Terminal == nil {
			return errors.New("write packets to -: this run has no standard output")
		}
		w.out = s.Terminal
	} else {
		f, err := os.OpenFile(w.path, captureFlags, captureMode)
		if err != nil {
			return fmt.Errorf("create capture file: %w", err)
		}
		w.out, w.closer = f, f
	}
	if f, ok := w.out.(*os.File); ok {
		if _, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS); err == nil {
			return fmt.Errorf("write packets to %s: %s", w.path, refuseTerminal)
		}
	}
	w.block(blockSection, func() {
		w.uint32(byteOrderMagic)
		w.uint32(1) // version 1.0
		w.buf = binary.NativeEndian.AppendUint64(w.buf, unknownLength)
		w.option(optOS, []byte("Linux"))
		w.option(optApplication, []byte(applicationPrefix+s.Name()))
		w.uint32(0)
	})
	return w.Flush()
}

// Write writes the current row.
func (w *pcapng) Write() error {
	r := w.row
	id := w.id(link{r.NetNS, r.IfIndex, string(r.Interface), r.Link})
	w.packets[id]++
	captured := min(uint32(len(r.head)+len(r.data)), w.snaplen)
	ns := uint64(r.Time)
	w.block(blockPacket, func() {
		w.uint32(id)
		w.uint32(uint32(ns >> 32))
		w.uint32(uint32(ns))
		w.uint32(captured)
		w.uint32(r.Len)
		head := min(captured, uint32(len(r.head)))
		w.buf = append(append(w.buf, r.head[:head]...), r.data[:captured-head]...)
		w.pad()
		w.option(optFlags, binary.NativeEndian.AppendUint32(nil, uint32(r.event.Direction)))
		if c := r.comment(w.env); c != "" {
			w.option(optComment, []byte(c))
		}
		w.uint32(0)
	})
	if len(w.buf) < batch {
		return nil
	}
	return w.Flush()
}

// Flush writes what is buffered, whole blocks only.
func (w *pcapng) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.out.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("write packets: %w", err)
	}
	return nil
}

// Close writes the statistics, with the number of lost packets, and closes the file. The interface
// of lost packets is not known: all are counted at the first one.
func (w *pcapng) Close(lost uint64) error {
	if lost > 0 && len(w.packets) == 0 {
		w.id(link{name: "any", kind: uint8(bpfLinkTypeLINK_RAW)})
	}
	ns := uint64(time.Now().UnixNano())
	for id, n := range w.packets {
		w.block(blockStatistics, func() {
			w.uint32(uint32(id))
			w.uint32(uint32(ns >> 32))
			w.uint32(uint32(ns))
			w.count(optReceived, n)
			if id == 0 {
				w.count(optDropped, lost)
				w.option(optComment, fmt.Appendf(nil, "%d packets of all interfaces were lost", lost))
			} else {
				w.count(optDropped, 0)
			}
			w.uint32(0)
		})
	}
	err := w.Flush()
	if w.closer != nil {
		err = errors.Join(err, w.closer.Close())
	}
	return err
}

// id returns the number of the interface, and writes its description before its first packet.
func (w *pcapng) id(l link) uint32 {
	if id, ok := w.ids[l]; ok {
		return id
	}
	id := uint32(len(w.packets))
	w.ids[l], w.packets = id, append(w.packets, 0)
	w.block(blockInterface, func() {
		w.uint32(uint32(l.kind))
		w.uint32(w.snaplen)
		w.option(optName, []byte(l.name))
		w.option(optDescription, fmt.Appendf(nil, "index %d in network namespace %d", l.index, l.netns))
		w.option(optResolution, []byte{nanoseconds})
		w.uint32(0)
	})
	return id
}

// block appends a block with the body that f appends.
func (w *pcapng) block(kind uint32, f func()) {
	start := len(w.buf)
	w.uint32(kind)
	w.uint32(0)
	f()
	size := uint32(len(w.buf) - start + 4)
	w.uint32(size)
	binary.NativeEndian.PutUint32(w.buf[start+4:], size)
}

func (w *pcapng) uint32(n uint32) { w.buf = binary.NativeEndian.AppendUint32(w.buf, n) }

func (w *pcapng) count(code uint16, n uint64) {
	w.option(code, binary.NativeEndian.AppendUint64(nil, n))
}

func (w *pcapng) option(code uint16, val []byte) {
	w.buf = binary.NativeEndian.AppendUint16(w.buf, code)
	w.buf = binary.NativeEndian.AppendUint16(w.buf, uint16(len(val)))
	w.buf = append(w.buf, val...)
	w.pad()
}

// pad aligns to 4 bytes: all blocks have a length that is a multiple of 4.
func (w *pcapng) pad() {
	for len(w.buf)%4 != 0 {
		w.buf = append(w.buf, 0)
	}
}
