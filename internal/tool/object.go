package tool

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

// Object returns a reader of a BPF object that is compressed by gzip, as in the binary. Errors are
// reported when it is read.
func Object(compressed []byte) io.ReaderAt { return &packed{compressed: compressed} }

type packed struct {
	compressed []byte
	plain      *bytes.Reader
}

func (o *packed) ReadAt(b []byte, off int64) (int, error) {
	if o.plain == nil {
		plain, err := inflate(o.compressed)
		if err != nil {
			return 0, fmt.Errorf("inflate BPF object: %w", err)
		}
		o.plain = bytes.NewReader(plain)
	}
	return o.plain.ReadAt(b, off)
}

func inflate(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	plain.Grow(5 * len(compressed))
	if _, err := plain.ReadFrom(r); err != nil {
		return nil, err
	}
	return plain.Bytes(), r.Close()
}
