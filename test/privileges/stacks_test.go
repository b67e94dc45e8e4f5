package privileges

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

// Unwind tables of programs that start during a run need additional maps, so a run with user stacks
// must keep CAP_BPF.
func TestKeptForUserStacks(t *testing.T) {
	needsRoot(t)
	tooltest.SystemCallTracepoints(t)
	for _, args := range [][]string{
		{"opensnoop", "-c"}, {"trace", "-U", "t:syscalls:sys_enter_openat"}, {"profile"},
	} {
		t.Run(args[0], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			cmd := program(ctx, 0, true, append(args, "--verbose", "--duration", "100ms")...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%q: %v: %s", args, err, &stderr)
			}
			for line := range strings.Lines(stderr.String()) {
				if _, kept, ok := strings.Cut(line, "remaining capabilities: "); ok && !strings.Contains(kept, "CAP_BPF") {
					t.Errorf("%q keeps %s", args, kept)
				}
			}
		})
	}
}
