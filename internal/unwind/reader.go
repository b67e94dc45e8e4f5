package unwind

import (
	"bytes"
	"encoding/binary"
)

// reader decodes numbers. After the end of the data, they are 0 and bad is set, because the data is
// from untrusted files.
type reader struct {
	data  []byte
	at    int
	order binary.ByteOrder
	bad   bool
}

func (r *reader) left() int { return len(r.data) - r.at }

// take returns the next n bytes, or nil if there are fewer.
func (r *reader) take(n uint64) []byte {
	if n > uint64(r.left()) {
		r.bad, r.at = true, len(r.data)
		return nil
	}
	b := r.data[r.at:][:n]
	r.at += int(n)
	return b
}

func (r *reader) number(size int) uint64 {
	b := r.take(uint64(size))
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(r.order.Uint16(b))
	case 4:
		return uint64(r.order.Uint32(b))
	case 8:
		return r.order.Uint64(b)
	}
	return 0
}

func (r *reader) byte() byte { return byte(r.number(1)) }

func (r *reader) uleb() uint64 {
	if at := r.at; at < len(r.data) && r.data[at] < 0x80 { // most numbers have one byte
		r.at++
		return uint64(r.data[at])
	}
	return r.longULEB()
}

func (r *reader) longULEB() (n uint64) {
	for shift := 0; ; shift += 7 {
		b := r.byte()
		n |= uint64(b&0x7f) << shift
		if b&0x80 == 0 {
			return n
		}
	}
}

func (r *reader) sleb() (n int64) {
	for shift := 0; ; {
		b := r.byte()
		n |= int64(b&0x7f) << shift
		shift += 7
		if b&0x80 != 0 {
			continue
		}
		if b&0x40 != 0 && shift < 64 {
			n |= -1 << shift
		}
		return n
	}
}

// text reads a NUL-terminated string.
func (r *reader) text() string {
	n := bytes.IndexByte(r.data[r.at:], 0)
	if n < 0 {
		r.take(uint64(r.left()) + 1)
		return ""
	}
	s := string(r.take(uint64(n)))
	r.at++
	return s
}

// Encodings of addresses (DW_EH_PE): how the value is applied. The low bits are size and sign.
const (
	encodingAbsolute = 0x00
	encodingPC       = 0x10
	encodingOmit     = 0xff
)

// address reads an encoded address. vaddr is the address of the data.
func (r *reader) address(encoding byte, vaddr uint64) uint64 {
	here := vaddr + uint64(r.at)
	var n uint64
	switch encoding & 0x0f {
	case 0x00, 0x04, 0x0c:
		n = r.number(8)
	case 0x02:
		n = r.number(2)
	case 0x03:
		n = r.number(4)
	case 0x0a:
		n = uint64(int16(r.number(2)))
	case 0x0b:
		n = uint64(int32(r.number(4)))
	default:
		r.bad = true
	}
	switch encoding & 0x70 {
	case encodingAbsolute:
	case encodingPC:
		n += here
	default:
		r.bad = true
	}
	return n
}
