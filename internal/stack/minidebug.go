package stack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"

	"github.com/ulikunitz/xz/lzma"

	"github.com/corescope/corescope/internal/limit"
)

// miniDebug returns a table of the symbols in .gnu_debugdata, or nil if there is none. That is an
// ELF file compressed with xz that has the symbols missing from .dynsym.
func (m *image) miniDebug() (*table, error) {
	packed, err := m.named(".gnu_debugdata", limit.MiniDebug)
	if err != nil || packed == nil {
		return nil, err
	}
	data, err := unxz(packed)
	if errors.Is(err, errTooLong) {
		return nil, &limit.Error{Input: "section .gnu_debugdata of " + m.path, Max: limit.MiniDebug, Unit: "bytes"}
	}
	if err != nil {
		return nil, fmt.Errorf("decompress .gnu_debugdata of %s: %w", m.path, err)
	}
	inner, err := openImage(bytes.NewReader(data), int64(len(data)), ".gnu_debugdata in "+m.path)
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata of %s: %w", m.path, err)
	}
	return inner.functions(elf.SHT_SYMTAB)
}

var (
	errXZ      = errors.New("malformed xz data")
	errTooLong = errors.New("too much decompressed data")
)

// unxz decompresses one xz stream. It parses the container itself and leaves only LZMA2 to the
// library, so that it can limit the sizes of the dictionary and of the data: the library allocates
// up to 4 GiB if a block header says so.
func unxz(packed []byte) ([]byte, error) {
	const header, maxSize = 12, limit.MiniDebug
	if len(packed) < header || string(packed[:6]) != "\xfd7zXZ\x00" {
		return nil, errXZ
	}
	sum, size := xzCheck(packed[7] & 15)
	r := bytes.NewReader(packed[header:])
	var out bytes.Buffer
	for {
		more, err := xzBlock(&out, r, sum, size, maxSize)
		if err != nil || !more {
			return out.Bytes(), err
		}
	}
}

// xzCheck returns the checksum function of a stream and the size of a checksum. The function is nil
// if it is not supported; such checksums are not verified.
func xzCheck(id byte) (hash.Hash, int) {
	switch id {
	case 1:
		return crc32.NewIEEE(), 4
	case 4:
		return crc64.New(crc64.MakeTable(crc64.ECMA)), 8
	}
	sizes := [16]int{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}
	return nil, sizes[id]
}

// xzBlock appends a block to out. more is false if the index follows instead of a block.
func xzBlock(out *bytes.Buffer, r *bytes.Reader, sum hash.Hash, sumSize, maxSize int) (more bool, err error) {
	dictionary, more, err := xzBlockHeader(r)
	if err != nil || !more {
		return false, err
	}
	before, packed := out.Len(), r.Len()
	z, err := lzma.Reader2Config{DictCap: dictionary}.NewReader2(r)
	if err != nil {
		return false, err
	}
	if _, err := io.Copy(out, io.LimitReader(z, int64(maxSize-before)+1)); err != nil {
		return false, err
	}
	if out.Len() > maxSize {
		return false, errTooLong
	}
	padding := -(packed - r.Len()) & 3 // block headers are a multiple of four bytes long
	tail := make([]byte, padding+sumSize)
	if _, err := io.ReadFull(r, tail); err != nil {
		return false, errXZ
	}
	return true, xzVerify(sum, out.Bytes()[before:], tail[padding:])
}

func xzVerify(sum hash.Hash, data, want []byte) error {
	if sum == nil {
		return nil
	}
	sum.Reset()
	sum.Write(data)
	got := sum.Sum(nil)
	for i := range got { // big-endian from hash.Hash, little-endian in xz
		if got[i] != want[len(want)-1-i] {
			return errXZ
		}
	}
	return nil
}

// xzBlockHeader returns the size of the dictionary. more is false if it finds the index.
func xzBlockHeader(r *bytes.Reader) (dictionary int, more bool, err error) {
	const hasPacked, hasUnpacked, oneFilter, lzma2, maxDictionary = 0x40, 0x80, 0, 0x21, 64 << 20
	words, err := r.ReadByte()
	if err != nil || words == 0 {
		return 0, false, err
	}
	b := make([]byte, int(words)*4+3)
	if _, err := io.ReadFull(r, b); err != nil || b[0]&3 != oneFilter {
		return 0, false, errXZ
	}
	flags, b := b[0], b[1:]
	for _, present := range []byte{hasPacked, hasUnpacked} {
		if flags&present != 0 {
			_, n := binary.Uvarint(b)
			b = b[max(n, 0):]
		}
	}
	if len(b) < 3 || b[0] != lzma2 || b[1] != 1 {
		return 0, false, errXZ
	}
	capacity, err := lzma.DecodeDictCap(b[2])
	if err != nil || capacity > maxDictionary {
		return 0, false, errXZ
	}
	return int(capacity), true, nil
}
