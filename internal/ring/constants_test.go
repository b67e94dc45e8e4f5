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

// TestDelay checks that the delay is that of the programs (event_wakeup_ns).
func TestDelay(t *testing.T) {
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
	if wakeup := time.Duration(ns); Delay != wakeup {
		t.Errorf("the delay is %v, want event_wakeup_ns, %v", Delay, wakeup)
	}
}
