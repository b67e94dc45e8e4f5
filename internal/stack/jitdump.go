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
)

// jitDump is what a JIT compiler has told of its code in perf's form of a jitdump: which
// function lay where, and from when on. It is 40 bytes a function and the names.
type jitDump struct {
	// codes are in the order of their addresses.
	codes []jitCode
	// ends are the largest ends of the codes so far, so that a search knows when to stop.
	ends  []uint64
	names []byte
}

type jitCode struct {
	start, size uint64
	time        uint64 // CLOCK_MONOTONIC in ns, 0 where it is another clock's
	name        uint32 // offset of the NUL-terminated name
	order       uint32 // which it was of all
}

// Bounds of a dump that is read: of its functions, of one name, of all names.
const (
	maxJITCodes = 1 << 20
	maxJITNames = 64 << 20
)

// isJITDump tells whether a process has mapped the file to say that it is its dump. It does
// so for perf to notice, as code, so no other process can put one under it.
func isJITDump(file string) bool {
	name, ok := strings.CutPrefix(path.Base(strings.TrimSuffix(file, " (deleted)")), "jit-")
	pid, isDump := strings.CutSuffix(name, ".dump")
	return ok && isDump && pid != "" && strings.Trim(pid, "0123456789") == ""
}

var errJITDump = errors.New("not a jitdump")

// jitReader reads the records of a dump, skipping what they say of code.
type jitReader struct {
	*bufio.Reader
	order   binary.ByteOrder
	timed   bool              // times are those of CLOCK_MONOTONIC
	byIndex map[uint64]uint32 // the compiler's number of a function → its name
	dump    *jitDump
}

// parseJITDump reads a dump as far as it is written; its last record may not be all there.
func parseJITDump(r io.Reader) (*jitDump, error) {
	j := &jitReader{Reader: bufio.NewReaderSize(r, 64<<10), byIndex: map[uint64]uint32{}, dump: &jitDump{}}
	if err := j.header(); err != nil {
		return nil, err
	}
	for len(j.dump.codes) < maxJITCodes && len(j.dump.names) < maxJITNames {
		if err := j.record(); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read jitdump: %w", err)
		}
	}
	j.dump.sort()
	return j.dump, nil
}

// header reads magic, version, its own size, the machine and the pid in 24 bytes, and then
// the time and flags.
func (j *jitReader) header() error {
	const magic, least, archTime = 0x4a695444, 40, 1
	var b [least]byte
	if _, err := io.ReadFull(j, b[:]); err != nil {
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
	if size < least {
		return errJITDump
	}
	j.timed = j.order.Uint64(b[32:])&archTime == 0
	return j.skip(uint64(size - least))
}

// Kinds of records.
const jitLoad, jitMove = 0, 1

// record reads one: kind, size with this head, and time.
func (j *jitReader) record() error {
	const head = 16
	var b [head]byte
	if _, err := io.ReadFull(j, b[:]); err != nil {
		return err
	}
	kind, size, time := j.order.Uint32(b[:]), j.order.Uint32(b[4:]), j.order.Uint64(b[8:])
	if size < head {
		return io.EOF // what follows cannot be found
	}
	if !j.timed {
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

// load reads of new code: pid, tid, address as mapped, address, size, index, and its name.
// The code itself follows.
func (j *jitReader) load(size, time uint64) error {
	const fixed = 40
	var b [fixed]byte
	if size < fixed {
		return j.skip(size)
	}
	if _, err := io.ReadFull(j, b[:]); err != nil {
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

// name reads a name that has so many bytes with its NUL, and keeps what is not too long.
func (j *jitReader) name(size uint64) error {
	name := make([]byte, min(size, maxName))
	if _, err := io.ReadFull(j, name); err != nil {
		return err
	}
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	j.dump.names = append(append(j.dump.names, name...), 0)
	return j.skip(size - min(size, maxName))
}

// move reads of code that lies elsewhere from now on: pid, tid, address as mapped, the old
// address, the new one, size, index.
func (j *jitReader) move(size, time uint64) error {
	const fixed = 48
	var b [fixed]byte
	if size < fixed {
		return j.skip(size)
	}
	if _, err := io.ReadFull(j, b[:]); err != nil {
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

// skip passes over n bytes, which may be more than an int of 32 bits has.
func (j *jitReader) skip(n uint64) error {
	_, err := io.CopyN(io.Discard, j, int64(n))
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

// find returns the code that lay at addr at a time, or now if that is 0. Code that newer one
// has taken a part of is gone. What another clock has timed was there always.
func (d *jitDump) find(addr, at uint64) (name []byte, start uint64) {
	c := d.newest(addr, addr+1, at)
	if c == nil || d.newest(c.start, c.start+c.size, at) != c {
		return nil, 0
	}
	return cstring(d.names, c.name), c.start
}

// newest returns the last code until then that has a part of the addresses from from to to.
func (d *jitDump) newest(from, to, at uint64) *jitCode {
	i, _ := slices.BinarySearchFunc(d.codes, to, func(c jitCode, to uint64) int {
		return compareBool(c.start >= to, c.start < to)
	})
	var best *jitCode
	for i--; i >= 0 && d.ends[i] > from; i-- {
		c := &d.codes[i]
		if c.start+c.size > from && (at == 0 || c.time <= at) && (best == nil || c.after(best)) {
			best = c
		}
	}
	return best
}

// after tells whether c was written later than o.
func (c *jitCode) after(o *jitCode) bool {
	return c.time > o.time || c.time == o.time && c.order > o.order
}

func (d *jitDump) bytes() int64 {
	const code, end = 32, 8
	return int64((code+end)*cap(d.codes) + cap(d.names))
}
