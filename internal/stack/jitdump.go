package stack

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/corescope/corescope/internal/limit"
)

// jitDump is the content of a jitdump, the file in which a JIT compiler describes its code for
// perf: address, size and time of each function. It takes 40 bytes per function, and the names.
type jitDump struct {
	// codes are sorted by address.
	codes []jitCode
	// ends[i] is the largest end of codes[0] to codes[i], so that a search knows when to stop.
	ends  []uint64
	names []byte
}

type jitCode struct {
	start, size uint64
	time        uint64 // CLOCK_MONOTONIC in ns, or 0 if the dump uses another clock
	name        uint32 // offset of the NUL-terminated name
	order       uint32 // position in the dump
}

// isJITDump reports whether file is a jitdump, by its name: jit-PID.dump. A process announces its
// dump to perf by mapping it executable, so no other process can provide a forged one.
func isJITDump(file string) bool {
	name, ok := strings.CutPrefix(path.Base(strings.TrimSuffix(file, " (deleted)")), "jit-")
	pid, isDump := strings.CutSuffix(name, ".dump")
	return ok && isDump && pid != "" && strings.Trim(pid, "0123456789") == ""
}

var errJITDump = errors.New("not a jitdump")

// jitReader reads the records of a dump. It skips the code in them.
type jitReader struct {
	in   *bufio.Reader
	file io.ReaderAt
	at   int64 // offset of the next byte
	left int64 // bytes that may still be read

	order   binary.ByteOrder
	hasTime bool              // times are of CLOCK_MONOTONIC
	byIndex map[uint64]uint32 // the compiler's index of a function → offset of its name
	dump    *jitDump
}

// errTooManyBytes is returned when limit.JITDumpBytes have been read.
var errTooManyBytes = errors.New("too many bytes")

// parseJITDump reads a dump. The last record can be incomplete, because the process is still
// writing. If the dump exceeds a limit, it returns the first part and a [limit.Error].
func parseJITDump(file io.ReaderAt, path string) (*jitDump, error) {
	j := &jitReader{file: file, left: limit.JITDumpBytes, byIndex: map[uint64]uint32{}, dump: &jitDump{}}
	j.seek(0)
	if err := j.header(); err != nil {
		return nil, err
	}
	exceeded, err := j.records(path)
	if err != nil {
		return nil, fmt.Errorf("read jitdump: %w", err)
	}
	j.dump.sort()
	return j.dump, exceeded
}

// records reads all records. exceeded is the limit that it stopped at, if any.
func (j *jitReader) records(path string) (exceeded, err error) {
	for {
		switch err := j.record(); {
		case errors.Is(err, errTooManyBytes):
			return &limit.Error{Input: path, Max: limit.JITDumpBytes, Unit: "bytes"}, nil
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, nil
		case err != nil:
			return nil, err
		case len(j.dump.codes) >= limit.JITFunctions || len(j.byIndex) >= limit.JITFunctions:
			return &limit.Error{Input: path, Max: limit.JITFunctions, Unit: "functions"}, nil
		case len(j.dump.names) >= limit.JITNames:
			return &limit.Error{Input: "function names of " + path, Max: limit.JITNames, Unit: "bytes"}, nil
		}
	}
}

// seek continues at a file offset.
func (j *jitReader) seek(at int64) {
	const buffer = 64 << 10
	from := io.NewSectionReader(j.file, at, 1<<62)
	if j.at = at; j.in == nil {
		j.in = bufio.NewReaderSize(&limitedReader{from, &j.left}, buffer)
	} else {
		j.in.Reset(&limitedReader{from, &j.left})
	}
}

// limitedReader reads until no bytes are left, and then returns errTooManyBytes.
type limitedReader struct {
	from io.Reader
	left *int64
}

func (c *limitedReader) Read(b []byte) (int, error) {
	if *c.left <= 0 {
		return 0, errTooManyBytes
	}
	n, err := c.from.Read(b)
	*c.left -= int64(n)
	return n, err
}

func (j *jitReader) readFull(b []byte) error {
	n, err := io.ReadFull(j.in, b)
	j.at += int64(n)
	return err
}

// header reads the header: magic number, version, header size, machine, padding and PID (24 bytes),
// and then time and flags.
func (j *jitReader) header() error {
	const magic, minSize, archTime = 0x4a695444, 40, 1
	var b [minSize]byte
	if err := j.readFull(b[:]); err != nil {
		return errJITDump
	}
	switch {
	case binary.LittleEndian.Uint32(b[:]) == magic:
		j.order = binary.LittleEndian
	case binary.BigEndian.Uint32(b[:]) == magic:
		j.order = binary.BigEndian
	default:
		return errJITDump
	}
	size := j.order.Uint32(b[8:])
	if size < minSize {
		return errJITDump
	}
	j.hasTime = j.order.Uint64(b[32:])&archTime == 0
	return j.skip(uint64(size - minSize))
}

// Types of records.
const jitLoad, jitMove = 0, 1

// record reads a record, which begins with type, size including this header, and time.
func (j *jitReader) record() error {
	const head = 16
	var b [head]byte
	if err := j.readFull(b[:]); err != nil {
		return err
	}
	kind, size, time := j.order.Uint32(b[:]), j.order.Uint32(b[4:]), j.order.Uint64(b[8:])
	if size < head {
		return io.EOF // malformed: the next record cannot be found
	}
	if !j.hasTime {
		time = 0
	}
	switch body := uint64(size - head); kind {
	case jitLoad:
		return j.load(body, time)
	case jitMove:
		return j.move(body, time)
	default:
		return j.skip(body)
	}
}

// load reads a record of new code: PID, TID, mapped address, address, size, index, the name, and
// the code itself.
func (j *jitReader) load(size, time uint64) error {
	const fixed = 40
	var b [fixed]byte
	if size < fixed {
		return j.skip(size)
	}
	if err := j.readFull(b[:]); err != nil {
		return err
	}
	word := func(i int) uint64 { return j.order.Uint64(b[8*i:]) }
	c := jitCode{start: word(2), size: word(3), time: time, name: uint32(len(j.dump.names))}
	left := size - fixed
	if c.size > left {
		return j.skip(left)
	}
	if err := j.name(left - c.size); err != nil {
		return err
	}
	j.byIndex[word(4)] = c.name
	j.add(c)
	return j.skip(c.size)
}

// name reads a name of size bytes, including the NUL, and stores at most maxName of them.
func (j *jitReader) name(size uint64) error {
	name := make([]byte, min(size, maxName))
	if err := j.readFull(name); err != nil {
		return err
	}
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	j.dump.names = append(append(j.dump.names, name...), 0)
	return j.skip(size - min(size, maxName))
}

// move reads a record of code that moves to another address: PID, TID, mapped address, old address,
// new address, size, index.
func (j *jitReader) move(size, time uint64) error {
	const fixed = 48
	var b [fixed]byte
	if size < fixed {
		return j.skip(size)
	}
	if err := j.readFull(b[:]); err != nil {
		return err
	}
	word := func(i int) uint64 { return j.order.Uint64(b[8*i:]) }
	if name, ok := j.byIndex[word(5)]; ok {
		j.add(jitCode{start: word(3), size: word(4), time: time, name: name})
	}
	return j.skip(size - fixed)
}

func (j *jitReader) add(c jitCode) {
	if c.size == 0 || c.start+c.size < c.start || len(cstring(j.dump.names, c.name)) == 0 {
		return
	}
	c.order = uint32(len(j.dump.codes))
	j.dump.codes = append(j.dump.codes, c)
}

// skip skips n bytes. It does not read those that are not buffered.
func (j *jitReader) skip(n uint64) error {
	const maxFile = 1 << 62
	if n > maxFile || j.at > maxFile-int64(n) {
		return io.EOF
	}
	if n > uint64(j.in.Buffered()) {
		j.seek(j.at + int64(n))
		return nil
	}
	j.at += int64(n)
	_, err := j.in.Discard(int(n))
	return err
}

func (d *jitDump) sort() {
	slices.SortFunc(d.codes, func(a, b jitCode) int {
		return compareBool(a.start > b.start, b.start > a.start)
	})
	d.codes, d.names = slices.Clip(d.codes), slices.Clip(d.names)
	d.ends = make([]uint64, len(d.codes))
	var end uint64
	for i, c := range d.codes {
		end = max(end, c.start+c.size)
		d.ends[i] = end
	}
}

// find returns the function at an address and time; time 0 means now. Code that newer code overlaps
// has been freed. If the dump uses another clock, the newest code is returned.
func (d *jitDump) find(addr, at uint64) (name []byte, start uint64) {
	c := d.newest(addr, addr+1, at)
	if c == nil || d.newest(c.start, c.start+c.size, at) != c {
		return nil, 0
	}
	return cstring(d.names, c.name), c.start
}

// newest returns the newest code in the range from..to that was written until a time, or nil.
func (d *jitDump) newest(from, to, at uint64) *jitCode {
	i, _ := slices.BinarySearchFunc(d.codes, to, func(c jitCode, to uint64) int {
		return compareBool(c.start >= to, c.start < to)
	})
	var best *jitCode
	for i--; i >= 0 && d.ends[i] > from; i-- {
		c := &d.codes[i]
		if c.start+c.size > from && (at == 0 || c.time <= at) && (best == nil || c.isNewerThan(best)) {
			best = c
		}
	}
	return best
}

// isNewerThan reports whether c was written later than o.
func (c *jitCode) isNewerThan(o *jitCode) bool {
	return c.time > o.time || c.time == o.time && c.order > o.order
}

func (d *jitDump) bytes() int64 {
	const code, end = 32, 8
	return int64((code+end)*cap(d.codes) + cap(d.names))
}
