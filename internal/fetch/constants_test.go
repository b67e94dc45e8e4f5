package fetch

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/cilium/ebpf/btf"
)

// TestAllocationFlags checks both forms in which kernels describe the flags.
func TestAllocationFlags(t *testing.T) {
	for format, want := range map[string]string{
		`__print_flags(REC->gfp_flags, "|", {(unsigned long)(((gfp_t)0x20u)|((gfp_t)0x200u)|((gfp_t)0x800u)), "GFP_ATOMIC"}, {(unsigned long)((gfp_t)0x800u), "__GFP_KSWAPD"}`:                  "map[GFP_ATOMIC:2592 __GFP_KSWAPD:2048]",
		`{( unsigned long)(((( gfp_t)((((1UL))) << (5)))|(( gfp_t)((((1UL))) << (11))))), "GFP_ATOMIC"}, {( unsigned long)(( gfp_t)(1UL << 3) & ~(( gfp_t)(1UL << 3))), "NONE"}, {REC->x, "X"}`: "map[GFP_ATOMIC:2080 NONE:0]",
	} {
		if got := fmt.Sprint(parseFlags(format)); got != want {
			t.Errorf("%s\n is %s, want %s", format, got, want)
		}
	}
}

// TestConstants checks names of different sources, and that a name with several values is unknown.
func TestConstants(t *testing.T) {
	enum := func(name string, n uint64) btf.Type {
		return &btf.Enum{Name: name, Size: 4, Signed: true, Values: []btf.EnumValue{{Name: "SAME", Value: 1}, {Name: "OTHER", Value: n}, {Name: "ONLY_" + name, Value: math.MaxUint64}}}
	}
	b, err := btf.NewBuilder([]btf.Type{enum("a", 1), enum("b", 2)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	types, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	f := &Finder{}
	find := f.constants(enumerators(types))
	for name, want := range map[string]string{
		"ENOENT": "2 true", "SIGKILL": "9 true", "SAME": "1 true", "OTHER": "0 false", "ONLY_a": "-1 true", "GFPX": "0 false",
	} {
		n, ok := find(name)
		if got := fmt.Sprint(n, ok); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
