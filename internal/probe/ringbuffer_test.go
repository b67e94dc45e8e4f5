package probe

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// withEvents adds the map of event.bpf.h and its variable.
func (o object) withEvents() object {
	o.Maps["events"] = &ebpf.MapSpec{Name: tag(), Type: ebpf.RingBuf, MaxEntries: 1 << 16, Tags: []string{userSpace}}
	delete(o.Variables, "runs") // event_perf_buffer replaces it at the same offset
	o.Variables["event_perf_buffer"] = &ebpf.VariableSpec{Name: "event_perf_buffer", SectionName: ".bss", Value: make([]byte, 1)}
	return o
}

// TestPerfBuffersWithoutRingBuffer checks that perf buffers are used, without an option, if the
// kernel has no ring buffer.
func TestPerfBuffersWithoutRingBuffer(t *testing.T) {
	needRoot(t)
	for _, tt := range []struct {
		name string
		have error // result of creating a ring buffer
		want ebpf.MapType
	}{
		{"supported", nil, ebpf.RingBuf},
		{"not supported", ebpf.ErrNotSupported, ebpf.PerfEventArray},
		{"not permitted", unix.EPERM, ebpf.RingBuf},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kernel, err := NewKernel("")
			if err != nil {
				t.Fatal(err)
			}
			kernel.haveMapType = func(ebpf.MapType) error { return tt.have }
			spec := newObject().withEvents()
			objects, err := Load(spec.CollectionSpec, Options{Kernel: kernel})
			if err != nil {
				t.Fatal(err)
			}
			defer objects.Close()
			if got := objects.Maps["events"].Type(); got != tt.want {
				t.Errorf("type of map events is %s, want %s", got, tt.want)
			}
			isPerf := spec.Variables["event_perf_buffer"].Value[0] == 1
			if isPerf != (tt.want == ebpf.PerfEventArray) {
				t.Errorf("event_perf_buffer is %v, want %v", isPerf, !isPerf)
			}
		})
	}
}

// TestLacksRingBuffer compares the result with the creation of a ring buffer.
func TestLacksRingBuffer(t *testing.T) {
	needRoot(t)
	kernel, err := NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 1 << 16})
	if err == nil {
		m.Close()
	}
	if got, want := kernel.lacksRingBuffer(newObject().withEvents().CollectionSpec), errors.Is(err, ebpf.ErrNotSupported); got != want {
		t.Errorf("lacksRingBuffer is %v, but creating a ring buffer: %v", got, err)
	}
	if kernel.lacksRingBuffer(newObject().CollectionSpec) {
		t.Error("lacksRingBuffer is true for an object without map events")
	}
}
