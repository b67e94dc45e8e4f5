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
	delete(o.Variables, "runs") // whose place in the section it takes
	o.Variables["event_perf_buffer"] = &ebpf.VariableSpec{Name: "event_perf_buffer", SectionName: ".bss", Value: make([]byte, 1)}
	return o
}

// A kernel without the ring buffer gets perf buffers, without being asked for them.
func TestPerfBuffersWithoutRingBuffer(t *testing.T) {
	needRoot(t)
	for _, tt := range []struct {
		name string
		have error // the kernel's answer to a ring buffer
		want ebpf.MapType
	}{
		{"has it", nil, ebpf.RingBuf},
		{"lacks it", ebpf.ErrNotSupported, ebpf.PerfEventArray},
		{"does not tell", unix.EPERM, ebpf.RingBuf},
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
				t.Errorf("events go through a %s, want a %s", got, tt.want)
			}
			told := spec.Variables["event_perf_buffer"].Value[0] == 1
			if told != (tt.want == ebpf.PerfEventArray) {
				t.Errorf("event_perf_buffer is %v", told)
			}
		})
	}
}

// The kernel is asked by creating a map.
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
		t.Errorf("lacks the ring buffer: %v, creating one: %v", got, err)
	}
	if kernel.lacksRingBuffer(newObject().CollectionSpec) {
		t.Error("an object without events needs perf buffers")
	}
}
