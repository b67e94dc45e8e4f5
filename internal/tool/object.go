package tool

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/corescope/corescope/internal/probe"
)

// Loader decodes the BPF object of a tool: all programs, unless told otherwise.
type Loader func(which ...Variants) (*ebpf.CollectionSpec, error)

// Variants selects programs of an object.
type Variants int

// FirstVariants leaves out programs that are needed only if others fail: see [probe.HideLater].
const FirstVariants Variants = 1

// LoadObject decodes a BPF object that is compressed by gzip, as in the binary.
func LoadObject(compressed []byte, which ...Variants) (*ebpf.CollectionSpec, error) {
	object, err := inflate(compressed)
	if err != nil {
		return nil, fmt.Errorf("inflate BPF object: %w", err)
	}
	if slices.Contains(which, FirstVariants) {
		if err := probe.HideLater(object); err != nil {
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
	plain.Grow(5 * len(compressed))
	if _, err := plain.ReadFrom(r); err != nil {
		return nil, err
	}
	return plain.Bytes(), r.Close()
}
