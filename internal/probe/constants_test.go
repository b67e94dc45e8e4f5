package probe

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/corescope/corescope/internal/layout"
)

// toolObject reads the object of a tool, whose package cannot be imported here.
func toolObject(t *testing.T, tool string) *ebpf.CollectionSpec {
	t.Helper()
	compressed, err := os.ReadFile("../../tools/" + tool + "/bpf_x86_bpfel.o.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestReturnForms compares the forms with enum return_form.
func TestReturnForms(t *testing.T) {
	if err := layout.CheckEnum(toolObject(t, "trace").Types, "return_form", map[string]uint64{
		"RETURN_AFTER": uint64(afterReturn), "RETURN_AT": uint64(atReturn), "RETURN_AT_SHARED": uint64(atSharedReturn),
	}); err != nil {
		t.Error(err)
	}
}

// TestUSDTSpec compares usdtSpec with struct usdt_spec.
func TestUSDTSpec(t *testing.T) {
	spec, ok := btf.UnderlyingType(toolObject(t, "javagc").Maps["usdt_specs"].Value).(*btf.Struct)
	if !ok {
		t.Fatal("the values of usdt_specs are not a struct")
	}
	if err := layout.Check(spec, reflect.TypeFor[usdtSpec]()); err != nil {
		t.Error(err)
	}
}
