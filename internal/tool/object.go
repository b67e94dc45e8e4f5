package tool

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/probe"
)

// Loader decodes the BPF object of a tool: all programs, unless told otherwise.
type Loader func(which ...Variants) (*ebpf.CollectionSpec, error)

// Variants selects programs of an object.
type Variants struct {
	without func() []string
}

// FirstVariants leaves out programs that are needed only if others fail, and those of the hooks that without
// returns: see [probe.HideUnneeded]. without is called when the object is read and about to be decoded.
func FirstVariants(without func() []string) Variants { return Variants{without} }

// LoadObject decodes a BPF object that is compressed by gzip, as in the binary.
func LoadObject(compressed []byte, which ...Variants) (*ebpf.CollectionSpec, error) {
	object, err := inflate(compressed)
	if err != nil {
		return nil, fmt.Errorf("inflate BPF object: %w", err)
	}
	for _, v := range which {
		if err := probe.HideUnneeded(object, v.without()); err != nil {
			return nil, fmt.Errorf("hide programs of BPF object: %w", err)
		}
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(object))
	if err != nil {
		return nil, fmt.Errorf("decode BPF object: %w", err)
	}
	return spec, nil
}

func inflate(compressed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	var plain bytes.Buffer
	plain.Grow(int(binary.LittleEndian.Uint32(compressed[len(compressed)-4:])) + bytes.MinRead) // the file ends with its length
	if _, err := plain.ReadFrom(r); err != nil {
		return nil, err
	}
	return plain.Bytes(), r.Close()
}
