package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// extPart returns a part of .BTF.ext with records of 8 bytes: one for each section, named by an offset.
func extPart(names ...uint32) []byte {
	order := binary.LittleEndian
	part := order.AppendUint32(nil, 8)
	for _, name := range names {
		part = order.AppendUint32(part, name)
		part = order.AppendUint32(part, 1)
		part = order.AppendUint64(part, uint64(name)<<32)
	}
	return part
}

func TestKeepExtInfo(t *testing.T) {
	strings := []byte("\x00one\x00two\x00three\x00") // at 1, 5 and 9
	hidden := map[string]bool{"one": true, "three": true}
	for _, test := range []struct{ part, want []byte }{
		{nil, nil},
		{extPart(), extPart()},
		{extPart(5), extPart(5)},
		{extPart(1, 5, 9, 5), extPart(5, 5)},
		{extPart(1, 9), extPart()},
	} {
		part := slices.Clone(test.part)
		if n, err := keepExtInfo(part, strings, hidden); err != nil || !bytes.Equal(part[:n], test.want) {
			t.Errorf("% x: kept % x, %v, want % x", test.part, part[:n], err, test.want)
		}
	}
	whole := extPart(1, 5)
	for _, part := range [][]byte{whole[:5], whole[:len(whole)-1], extPart(uint32(len(strings) + 1))} {
		if _, err := keepExtInfo(slices.Clone(part), strings, hidden); !errors.Is(err, errExtInfo) {
			t.Errorf("% x: %v, want %v", part, err, errExtInfo)
		}
	}
}

// TestHideExtInfo checks that less is left of .BTF.ext for hidden programs, and that broken offsets and lengths
// are errors.
func TestHideExtInfo(t *testing.T) {
	object := inflateObject(t, "../../tools/opensnoop/bpf_x86_bpfel.o.gz")
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	ext := f.Section(".BTF.ext")
	length := func() (sum uint32) {
		for _, at := range []uint64{12, 20, 28} { // of functions, lines and relocations
			sum += binary.LittleEndian.Uint32(object[ext.Offset+at:])
		}
		return sum
	}
	before := length()
	if err := hideExtInfo(object, f, map[string]bool{"no_such_section": true}); err != nil || length() != before {
		t.Errorf("%d of %d bytes are left without hidden programs, %v", length(), before, err)
	}
	if err := hideUnneeded(object, nil, true); err != nil || length() > before/2 {
		t.Errorf("%d of %d bytes are left, %v", length(), before, err)
	}
	for _, at := range []uint64{4, 8, 12} {
		broken := slices.Clone(object)
		binary.LittleEndian.PutUint32(broken[ext.Offset+at:], 1<<30)
		if err := hideExtInfo(broken, f, nil); !errors.Is(err, errExtInfo) {
			t.Errorf("header with a broken number at %d: %v", at, err)
		}
	}
}
