package ring

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// TestPollAfterWakeup checks that the reader first polls when programs wake it again (event_wakeup_ns).
func TestPollAfterWakeup(t *testing.T) {
	compressed, err := os.ReadFile("../../tools/opensnoop/bpf_x86_bpfel.o.gz")
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
	var ns uint64
	if err := spec.Variables["event_wakeup_ns"].Get(&ns); err != nil {
		t.Fatal(err)
	}
	if wakeup := time.Duration(ns); pollFirst <= wakeup || pollFirst > wakeup+5*time.Millisecond {
		t.Errorf("the reader polls after %v, want a little more than event_wakeup_ns, %v", pollFirst, wakeup)
	}
}
