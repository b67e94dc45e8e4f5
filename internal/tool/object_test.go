package tool

import (
	"bytes"
	"compress/gzip"
	"os"
	"testing"
)

func TestLoadObject(t *testing.T) {
	object, err := os.ReadFile("../../tools/opensnoop/bpf_x86_bpfel.o.gz")
	if err != nil {
		t.Fatal(err)
	}
	all, err := LoadObject(object)
	if err != nil || all.Programs["open__btf"] == nil || all.Programs["open__raw"] == nil || all.Programs["uring__btf__submit"] == nil {
		t.Errorf("%d programs, %v", len(all.Programs), err)
	}
	without := FirstVariants(func() []string { return []string{"uring"} })
	first, err := LoadObject(object, without)
	if err != nil || first.Programs["open__btf"] == nil || first.Programs["uring__btf__submit"] != nil || len(first.Programs) > len(all.Programs) {
		t.Errorf("%d programs, %v", len(first.Programs), err)
	}
	var none bytes.Buffer
	if err := gzip.NewWriter(&none).Close(); err != nil {
		t.Fatal(err)
	}
	for _, broken := range [][]byte{nil, object[:len(object)-1], append([]byte("x"), object...), none.Bytes()} {
		for _, which := range [][]Variants{nil, {without}} {
			if _, err := LoadObject(broken, which...); err == nil {
				t.Errorf("no error for a broken object of %d bytes", len(broken))
			}
		}
	}
}
