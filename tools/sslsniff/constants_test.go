package sslsniff

import (
	"reflect"
	"strconv"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestMaximumIsDataSize compares the maximum of --max-buffer-size with the size of struct scratch.data.
func TestMaximumIsDataSize(t *testing.T) {
	spec, err := loadBpf()
	if err != nil {
		t.Fatal(err)
	}
	var scratch *btf.Struct
	if err := spec.Types.TypeByName("scratch", &scratch); err != nil {
		t.Fatal(err)
	}
	size := -1
	for _, m := range scratch.Members {
		if m.Name == "data" {
			size, _ = btf.Sizeof(m.Type)
		}
	}
	field, _ := reflect.TypeFor[options]().FieldByName("Bytes")
	if got := field.Tag.Get("max"); got != strconv.Itoa(size) {
		t.Errorf("the maximum of --max-buffer-size is %s, struct scratch has %d bytes of data", got, size)
	}
}
