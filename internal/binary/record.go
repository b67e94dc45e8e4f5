package binary

import (
	"bytes"
	"encoding/binary"
	"math"

	"golang.org/x/sys/unix"
)

// Sizes of struct perf_event_header, and of PERF_RECORD_MMAP2 up to the file's name.
const (
	recordHeader = 8
	mmap2Size    = recordHeader + 64
)

func le16(b []byte) uint16 { return binary.NativeEndian.Uint16(b) }

// copyFrom copies n bytes at a position of a ring buffer, which wraps around.
func copyFrom(ring []byte, pos, n uint64) []byte {
	out := make([]byte, n)
	pos %= uint64(len(ring))
	copied := copy(out, ring[pos:])
	copy(out[copied:], ring)
	return out
}

func isLost(record []byte) bool {
	return binary.NativeEndian.Uint32(record) == unix.PERF_RECORD_LOST
}

// parseRecord parses a PERF_RECORD_MMAP2. It returns false for other records, for mappings without
// a file, and for processes that have no PID in the PID namespace of corescope.
func parseRecord(b []byte) (Mapped, bool) {
	if len(b) <= mmap2Size || binary.NativeEndian.Uint32(b) != unix.PERF_RECORD_MMAP2 {
		return Mapped{}, false
	}
	start := binary.NativeEndian.Uint64(b[16:])
	name, _, _ := bytes.Cut(b[mmap2Size:], []byte{0})
	m := Mapped{
		PID:    binary.NativeEndian.Uint32(b[8:]),
		Start:  start,
		End:    start + binary.NativeEndian.Uint64(b[24:]),
		Offset: binary.NativeEndian.Uint64(b[32:]),
		Inode:  binary.NativeEndian.Uint64(b[48:]),
		Device: binary.NativeEndian.Uint32(b[40:])<<20 | binary.NativeEndian.Uint32(b[44:]),
		Path:   string(name),
		Time:   timeOf(b),
	}
	const exited = math.MaxUint32 // the process had exited when the kernel wrote the record
	return m, m.PID != 0 && m.PID != exited && m.Inode != 0 && len(name) > 0 && name[0] == '/'
}

// isExec reports whether a record is the PERF_RECORD_COMM of a process that executes a new program.
func isExec(b []byte) bool {
	const misc, commSize = 4, recordHeader + 16 // with the shortest name and the time
	if len(b) < commSize+8 || binary.NativeEndian.Uint32(b) != unix.PERF_RECORD_COMM {
		return false
	}
	return le16(b[misc:])&unix.PERF_RECORD_MISC_COMM_EXEC != 0
}

// timeOf returns the time of a record, which is its last word.
func timeOf(b []byte) uint64 { return binary.NativeEndian.Uint64(b[len(b)-8:]) }
