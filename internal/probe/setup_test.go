package probe

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// variables returns a spec with variables of these sizes.
func variables(sizes map[string]int) *ebpf.CollectionSpec {
	spec := &ebpf.CollectionSpec{Variables: map[string]*ebpf.VariableSpec{}, Maps: map[string]*ebpf.MapSpec{}}
	for name, size := range sizes {
		spec.Variables[name] = &ebpf.VariableSpec{Name: name, SectionName: ".rodata", Value: bytes.Repeat([]byte{0xee}, size)}
	}
	return spec
}

func TestSetVariable(t *testing.T) {
	spec := variables(map[string]int{"name": 4, "name_len": 4, "bare": 4, "flag": 1, "ids": 8, "bad": 4, "bad_len": 8})
	for _, tt := range []struct {
		name string
		val  any
		want map[string]string // bytes of variables
	}{
		{"name", "ab", map[string]string{"name": "ab\x00\x00", "name_len": "\x02\x00\x00\x00"}},
		{"name", "", map[string]string{"name": "\x00\x00\x00\x00", "name_len": "\x00\x00\x00\x00"}},
		{"name", "abcd", map[string]string{"name": "abcd", "name_len": "\x04\x00\x00\x00"}},
		{"bare", "x\xff", map[string]string{"bare": "x\xff\x00\x00"}},
		{"flag", true, map[string]string{"flag": "\x01"}},
		{"ids", [2]uint32{1, 2}, map[string]string{"ids": "\x01\x00\x00\x00\x02\x00\x00\x00"}},
	} {
		if err := setVariable(spec, tt.name, tt.val); err != nil {
			t.Errorf("%s = %v: %v", tt.name, tt.val, err)
		}
		for name, want := range tt.want {
			if got := string(spec.Variables[name].Value); got != want {
				t.Errorf("%s = %v: %s is %q, want %q", tt.name, tt.val, name, got, want)
			}
		}
	}
	err := setVariable(spec, "name", "abcde")
	if !errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), "5 bytes, the maximum is 4") {
		t.Errorf("string of 5 bytes: %v, want ErrTooLong", err)
	}
	for name, val := range map[string]any{"none": 1, "flag": uint32(1), "bad": "x", "ids": make(chan int)} {
		if err := setVariable(spec, name, val); err == nil {
			t.Errorf("setting %s to a %T: no error", name, val)
		}
	}
}

func TestSetArray(t *testing.T) {
	spec := variables(map[string]int{"ids": 12, "names": 8})
	number, char := &btf.Int{Name: "unsigned int", Size: 4}, &btf.Int{Name: "char", Size: 1}
	spec.Variables["ids"].Type = &btf.Var{Name: "ids", Type: &btf.Const{Type: &btf.Array{Type: number, Nelems: 3}}}
	spec.Variables["names"].Type = &btf.Var{Name: "names", Type: &btf.Array{Type: &btf.Array{Type: char, Nelems: 4}, Nelems: 2}}
	for _, tt := range []struct {
		name string
		val  any
		want string
	}{
		{"ids", []uint32{1, 2}, "\x01\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"},
		{"ids", []uint32(nil), strings.Repeat("\x00", 12)},
		{"names", []string{"abcde", "x"}, "abc\x00x\x00\x00\x00"},
		{"names", []string{"x"}, "x\x00\x00\x00\x00\x00\x00\x00"},
	} {
		if err := setVariable(spec, tt.name, tt.val); err != nil {
			t.Errorf("%s = %v: %v", tt.name, tt.val, err)
		}
		if got := string(spec.Variables[tt.name].Value); got != tt.want {
			t.Errorf("%s = %v: %q, want %q", tt.name, tt.val, got, tt.want)
		}
	}
	for name, val := range map[string]any{"ids": make([]uint32, 4), "names": make([]string, 3)} {
		if err := setVariable(spec, name, val); !errors.Is(err, ErrTooLong) {
			t.Errorf("%s = %v: %v, want ErrTooLong", name, val, err)
		}
	}
}

// newTestKernel returns a kernel with these types only.
func newTestKernel(t *testing.T, types ...btf.Type) *Kernel {
	t.Helper()
	b, err := btf.NewBuilder(types, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := b.Marshal(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return &Kernel{given: spec}
}

func TestPreallocate(t *testing.T) {
	old := newTestKernel(t, &btf.Struct{Name: "other", Size: 4})
	alloc := &btf.Struct{Name: "bpf_mem_alloc", Size: 4}
	spinlock := func(member string) *btf.Struct {
		u32 := &btf.Int{Name: "u32", Size: 4}
		return &btf.Struct{Name: "spinlock", Size: 4, Members: []btf.Member{{Name: member, Type: u32}}}
	}
	safe, realtime := newTestKernel(t, alloc, spinlock("")), newTestKernel(t, alloc, spinlock("lock"))
	grows := ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: 1 << 20, Flags: unix.BPF_F_NO_PREALLOC}
	for _, tt := range []struct {
		name   string
		kernel *Kernel
		m      ebpf.MapSpec
		want   ebpf.MapSpec
	}{
		{"safe", safe, grows, grows},
		{"old", old, grows, ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: preallocatedMax}},
		{"PREEMPT_RT", realtime, grows, ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: preallocatedMax}},
		{"old and small", old, ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: 5, Flags: unix.BPF_F_NO_PREALLOC}, ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: 5}},
		{"old, preallocated", old, ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: 1 << 20}, ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: 1 << 20}},
		{"old, task storage", old, ebpf.MapSpec{Type: ebpf.TaskStorage, Flags: unix.BPF_F_NO_PREALLOC}, ebpf.MapSpec{Type: ebpf.TaskStorage, Flags: unix.BPF_F_NO_PREALLOC}},
	} {
		m := tt.m
		preallocate(&ebpf.CollectionSpec{Maps: map[string]*ebpf.MapSpec{"m": &m}}, tt.kernel)
		if !reflect.DeepEqual(m, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, &m, &tt.want)
		}
	}
}

func TestSetUp(t *testing.T) {
	spec := variables(map[string]int{"event_perf_buffer": 1, "n": 4})
	spec.Maps["events"] = &ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 4096}
	spec.Maps["hists"] = &ebpf.MapSpec{Type: ebpf.Hash, MaxEntries: 10}
	o := Options{Variables: map[string]any{"n": uint32(7)}, MapEntries: map[string]uint32{"events": 8192, "none": 1}, Kernel: newTestKernel(t)}
	both := func() error { return errors.Join(setConstants(spec, o), setUp(spec, o)) }
	if err := both(); err != nil {
		t.Fatal(err)
	}
	if m := spec.Maps["events"]; m.Type != ebpf.RingBuf || m.MaxEntries != 8192 || spec.Maps["hists"].MaxEntries != 10 {
		t.Errorf("maps %v, %v", m, spec.Maps["hists"])
	}
	if got := spec.Variables["n"].Value[0]; got != 7 {
		t.Errorf("n is %d", got)
	}
	o.PerfBuffer = true
	if err := both(); err != nil {
		t.Fatal(err)
	}
	if m := spec.Maps["events"]; m.Type != ebpf.PerfEventArray || m.MaxEntries != 0 || m.KeySize != 4 || m.ValueSize != 4 {
		t.Errorf("perf event array %v", m)
	}
	if got := spec.Variables["event_perf_buffer"].Value[0]; got != 1 {
		t.Errorf("event_perf_buffer is %d, want 1", got)
	}
	o.Variables = map[string]any{"none": true}
	if err := both(); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("missing variable: %v, want an error with its name", err)
	}
}

func TestNewKernel(t *testing.T) {
	if _, err := NewKernel("/no/such/file"); err == nil {
		t.Error("reading a missing BTF file: no error")
	}
	if k, err := NewKernel(""); err != nil || k.given != nil {
		t.Errorf("%v, %v", k, err)
	}
	given := newTestKernel(t, &btf.Struct{Name: "x", Size: 4})
	if types, err := given.Types(); err != nil || types != given.given {
		t.Errorf("%v, %v", types, err)
	}
}

func TestCounterTypes(t *testing.T) {
	u64 := &btf.Int{Name: "u64", Size: 8}
	good := &btf.Struct{Name: "lost", Size: 16, Members: []btf.Member{{Name: "a", Type: u64}, {Name: "b", Type: u64, Offset: 64}}}
	if members, err := counters(&btf.Typedef{Name: "t", Type: good}); err != nil || len(members) != 2 {
		t.Errorf("%v, %v", members, err)
	}
	small := &btf.Struct{Name: "lost", Size: 4, Members: []btf.Member{{Name: "a", Type: &btf.Int{Name: "u32", Size: 4}}}}
	for _, bad := range []btf.Type{nil, u64, small} {
		if _, err := counters(bad); err == nil {
			t.Errorf("counters of %v: no error", bad)
		}
	}
	none := (&Objects{}).Counts("lost")
	if counts, err := none.Read(); err != nil || len(counts) != 0 {
		t.Errorf("counters of a missing map: %v, %v", counts, err)
	}
}

// eagainReader returns up to 3 bytes per Read, and EAGAIN from every other Read.
type eagainReader struct {
	rest   []byte
	failed bool // the previous Read returned EAGAIN
}

func (r *eagainReader) Read(b []byte) (int, error) {
	if r.failed = !r.failed; r.failed {
		return 0, unix.EAGAIN
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b, r.rest[:min(3, len(r.rest))])
	r.rest = r.rest[n:]
	return n, nil
}

func TestRecords(t *testing.T) {
	var got []string
	yield := func(b []byte) error { got = append(got, string(b)); return nil }
	rows := "\x04\x00\x00\x00aaaa\x00\x00\x00\x00\x02\x00\x00\x00cc"
	if err := records(retryReader{&eagainReader{rest: []byte(rows)}}, yield); err != nil || strings.Join(got, " ") != "aaaa  cc" {
		t.Errorf("%q, %v", got, err)
	}
	if err := records(retryReader{&eagainReader{}}, yield); err != nil || len(got) != 3 {
		t.Errorf("empty input: %q, %v", got, err)
	}
	for _, half := range []string{rows[:2], rows[:4], rows[:6]} {
		if err := records(retryReader{&eagainReader{rest: []byte(half)}}, yield); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("truncated input %q: %v, want ErrUnexpectedEOF", half, err)
		}
	}
	if err := records(strings.NewReader("\xff\xff\xff\xff"), yield); err == nil {
		t.Error("record of 4 GiB: no error")
	}
	stop := errors.New("stop")
	n := 0
	err := records(strings.NewReader(rows), func([]byte) error { n++; return stop })
	if !errors.Is(err, stop) || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
}
