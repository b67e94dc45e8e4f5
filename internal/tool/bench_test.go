package tool_test

import (
	"context"
	"io"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// BenchmarkStart measures a run that ends as soon as it is ready: read the object, load, attach and
// detach its programs.
func BenchmarkStart(b *testing.B) {
	tooltest.Root(b)
	canceled, cancel := context.WithCancel(b.Context())
	cancel()
	b.ReportAllocs()
	for b.Loop() {
		if code, stderr := run(b, canceled, io.Discard, nil, "--path", "/none"); code != 0 {
			b.Fatal(stderr)
		}
	}
}
