package probe

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
)

// TestEarly checks that Load uses a ring buffer that was created before if it is the one that the
// object needs, and that no other is left in the kernel.
func TestEarly(t *testing.T) {
	needRoot(t)
	if errors.Is(features.HaveMapType(ebpf.RingBuf), ebpf.ErrNotSupported) {
		t.Skip("no ring buffers")
	}
	const size, larger = 1 << 16, 1 << 17
	for _, tt := range []struct {
		name     string
		early    uint32 // size of the early ring buffer, 0 for that of the object
		options  Options
		want     uint32 // size of the map of the object, 0 for perf buffers
		isEarly  bool
		noEvents bool
	}{
		{name: "same", want: size, isEarly: true},
		{name: "same size from options", early: larger, options: Options{MapEntries: map[string]uint32{"events": larger}}, want: larger, isEarly: true},
		{name: "other size", early: larger, want: size},
		{name: "cannot be created", early: 1, want: size},
		{name: "perf buffers", options: Options{PerfBuffer: true}},
		{name: "no events", noEvents: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := newObject().withEvents()
			if tt.noEvents {
				o = newObject()
			}
			_, before, _ := countObjects(t)
			early := CreateEarly(o.CollectionSpec, tt.early)
			<-early.done
			ring, grace := early.ring, early.grace
			if grace == nil || ring != nil && tt.noEvents {
				t.Fatalf("created early: %v, %v", grace, ring)
			}
			tt.options.Early = early
			objects := o.load(t, tt.options)
			events := objects.Maps["events"]
			if isEarly := ring != nil && events == ring; isEarly != tt.isEarly || objects.grace != grace {
				t.Errorf("the early ring buffer is used: %t, the maps for grace periods: %t", isEarly, objects.grace == grace)
			}
			if err := early.Close(); err != nil {
				t.Error(err)
			}
			if tt.want != 0 && (events.Type() != ebpf.RingBuf || events.MaxEntries() != tt.want) {
				t.Errorf("map events is %s with %d bytes", events.Type(), events.MaxEntries())
			}
			if events != nil && events.FD() < 0 {
				t.Error("map events is closed")
			}
			if err := objects.Close(); err != nil {
				t.Error(err)
			}
			waitFor(t, 0, before, 0)
		})
	}
}
