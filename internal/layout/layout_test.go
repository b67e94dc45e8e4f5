package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
)

var (
	u8   = &btf.Int{Name: "unsigned char", Size: 1}
	char = &btf.Int{Name: "char", Size: 1, Encoding: btf.Signed}
	u16  = &btf.Int{Name: "unsigned short", Size: 2}
	u32  = &btf.Int{Name: "unsigned int", Size: 4}
	s32  = &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	u64  = &btf.Typedef{Name: "__u64", Type: &btf.Int{Name: "unsigned long long", Size: 8}}
	flag = &btf.Int{Name: "bool", Size: 1, Encoding: btf.Bool}
	kind = &btf.Enum{Name: "kind", Size: 4}
	addr = &btf.Pointer{Target: u32}
	ip   = &btf.Union{Name: "ip", Size: 4, Members: []btf.Member{{Name: "v4", Type: u32}}}
)

func array(t btf.Type, n uint32) btf.Type { return &btf.Array{Index: u32, Type: t, Nelems: n} }

// member is a member of a struct without implicit padding.
type member struct {
	name string
	t    btf.Type
}

// structOf returns a struct with consecutive members.
func structOf(t testing.TB, name string, members ...member) *btf.Struct {
	t.Helper()
	s := &btf.Struct{Name: name}
	for _, m := range members {
		size, err := btf.Sizeof(m.t)
		if err != nil {
			t.Fatal(err)
		}
		s.Members = append(s.Members, btf.Member{Name: m.name, Type: m.t, Offset: btf.Bits(s.Size * 8)})
		s.Size += uint32(size)
	}
	return s
}

type goHead struct {
	TimeNS uint64
	Comm   [4]byte
	UID    uint32
}

func head(t testing.TB) *btf.Struct {
	t.Helper()
	return structOf(t, "head", member{"time_ns", u64}, member{"comm", array(char, 4)}, member{"uid", u32})
}

type wrapped struct{ N uint64 }

type goEvent struct {
	goHead  `btf:"task"`
	Cookie  uint64
	Span    wrapped
	Ret     int32
	Flags   uint32 `btf:"how"`
	Ports   [2]uint16
	Kind    int32
	Failed  bool
	Partial bool
	_       [2]byte
	IP      [4]byte
	Sock    uint64
}

func event(t testing.TB) *btf.Struct {
	t.Helper()
	return structOf(t, "event",
		member{"task", head(t)}, member{"cookie", u64}, member{"span", u64}, member{"ret", s32}, member{"how", u32},
		member{"ports", array(u16, 2)}, member{"kind", kind}, member{"failed", flag}, member{"partial", u8},
		member{"pad", array(u8, 2)}, member{"ip", ip}, member{"sock", addr})
}

func TestCheck(t *testing.T) {
	if err := Check(event(t), reflect.TypeFor[goEvent]()); err != nil {
		t.Error(err)
	}
	withTail := event(t)
	withTail.Members = append(withTail.Members, btf.Member{Name: "data", Type: array(char, 100), Offset: btf.Bits(withTail.Size * 8)})
	withTail.Size += 104 // the C struct is padded to a multiple of 8
	if err := Check(withTail, reflect.TypeFor[goEvent]()); err != nil {
		t.Errorf("with a tail: %v", err)
	}
	withTail.Members[len(withTail.Members)-1].Type = array(char, 0)
	withTail.Size -= 104
	if err := Check(withTail, reflect.TypeFor[goEvent]()); err != nil {
		t.Errorf("with a flexible tail: %v", err)
	}
}

func TestCheckFindsMismatches(t *testing.T) {
	ab := func(a, b btf.Type) *btf.Struct { return structOf(t, "event", member{"a", a}, member{"b", b}) }
	type swapped struct{ B, A uint32 }
	type two struct{ A, B uint32 }
	type nested struct {
		A struct{ X, Y uint16 }
		B uint32
	}
	pair := structOf(t, "pair", member{"y", u16}, member{"x", u16})
	shifted := ab(u32, u32)
	shifted.Members[1].Offset, shifted.Size = 64, 12
	bits := ab(u32, u32)
	bits.Members[1].BitfieldSize = 3
	for _, tt := range []struct {
		name string
		c    *btf.Struct
		t    reflect.Type
		want string
	}{
		{"swapped fields", ab(u32, u32), reflect.TypeFor[swapped](), "member a is B"},
		{"different size", ab(u32, u64), reflect.TypeFor[two](), "12 bytes"},
		{"different member sizes, equal total", ab(u16, structOf(t, "x", member{"p", u16}, member{"q", u32})), reflect.TypeFor[two](), "member a: 2 bytes"},
		{"different offset", shifted, reflect.TypeFor[struct {
			A uint32
			B [8]byte
		}](), "member b is at bit 64, in Go at byte 4"},
		{"signed in C", ab(s32, u32), reflect.TypeFor[two](), "member a"},
		{"signed in Go", ab(u32, u32), reflect.TypeFor[struct {
			A uint32
			B int32
		}](), "member b"},
		{"signedness of elements", structOf(t, "event", member{"a", array(s32, 2)}), reflect.TypeFor[struct{ A [2]uint32 }](), "member a"},
		{"size of elements", structOf(t, "event", member{"a", array(u32, 4)}), reflect.TypeFor[struct{ A [2]uint64 }](), "member a"},
		{"number for array", structOf(t, "event", member{"a", array(u16, 2)}), reflect.TypeFor[struct{ A uint32 }](), "member a"},
		{"float", structOf(t, "event", member{"a", u64}), reflect.TypeFor[struct{ A float64 }](), "member a"},
		{"pointer in Go", structOf(t, "event", member{"a", addr}), reflect.TypeFor[struct{ A *uint32 }](), "member a"},
		{"pointer for number", structOf(t, "event", member{"a", u64}), reflect.TypeFor[struct{ A *uint32 }](), "member a"},
		{"string", structOf(t, "event", member{"a", array(u64, 2)}), reflect.TypeFor[struct{ A string }](), "member a"},
		{"bit field", bits, reflect.TypeFor[two](), "member b"},
		{"nested struct", ab(pair, u32), reflect.TypeFor[nested](), "struct pair: member y is X"},
		{"struct only in Go", ab(u32, u32), reflect.TypeFor[nested](), "member a"},
		{"member missing in Go", ab(u32, u32), reflect.TypeFor[struct{ A uint32 }](), "8 bytes"},
		{"member missing in C", structOf(t, "event", member{"a", u32}), reflect.TypeFor[two](), "4 bytes"},
		{"members joined", ab(u32, u32), reflect.TypeFor[struct{ A uint64 }](), "2 members"},
		{"tail of numbers", ab(u32, array(u32, 4)), reflect.TypeFor[struct{ A uint32 }](), "20 bytes"},
		{"tail too early", structOf(t, "event", member{"a", u32}, member{"data", array(char, 8)}), reflect.TypeFor[two](), "12 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Check(tt.c, tt.t)
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

type Task struct{ PID, TID uint32 }

type goRow struct {
	goEvent
	Derived string
}

func TestWire(t *testing.T) {
	type headed struct {
		Task
		Size uint32
	}
	for _, tt := range []struct{ row, want reflect.Type }{
		{reflect.TypeFor[goRow](), reflect.TypeFor[goEvent]()},
		{reflect.TypeFor[headed](), reflect.TypeFor[headed]()},
		{reflect.TypeFor[struct{ A uint32 }](), reflect.TypeFor[struct{ A uint32 }]()},
		{reflect.TypeFor[struct{}](), reflect.TypeFor[struct{}]()},
	} {
		if got := Wire(tt.row); got != tt.want {
			t.Errorf("wire type of %s is %s, want %s", tt.row, got, tt.want)
		}
	}
}

func TestDecode(t *testing.T) {
	r := goRow{Derived: "kept"}
	d := NewDecoder(&r)
	want := goEvent{Cookie: 5, Ret: -2, Failed: true, Ports: [2]uint16{80, 443}, Sock: 1 << 63}
	want.TimeNS, want.UID = 1<<40, 1000
	copy(want.Comm[:], "bash")
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, want); err != nil {
		t.Fatal(err)
	}
	if b.Len() != d.Size() {
		t.Fatalf("size of event is %d, of decoder %d", b.Len(), d.Size())
	}
	sample := append(b.Bytes(), "tail"...)
	tail, err := d.Decode(sample)
	if err != nil || r.goEvent != want || r.Derived != "kept" || string(tail) != "tail" {
		t.Errorf("%+v, %q, %v", r, tail, err)
	}
	if tail, err := d.Decode(sample[:d.Size()]); err != nil || len(tail) != 0 {
		t.Errorf("without a tail: %q, %v", tail, err)
	}
	for _, short := range [][]byte{nil, sample[:1], sample[:d.Size()-1]} {
		r.goEvent = goEvent{}
		if _, err := d.Decode(short); !errors.Is(err, ErrShort) || r.goEvent != (goEvent{}) {
			t.Errorf("%d bytes: %v, %+v", len(short), err, r.goEvent)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	var r goRow
	d := NewDecoder(&r)
	sample := make([]byte, d.Size()+64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Decode(sample); err != nil {
			b.Fatal(err)
		}
	}
}
