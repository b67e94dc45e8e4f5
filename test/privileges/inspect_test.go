package privileges

import (
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/tools/javagc"
)

// Processes that cannot be inspected are named at the start where capabilities are missing
// for it. To root, who can do nothing about what the kernel hides, they are not.
func TestUninspected(t *testing.T) {
	needsRoot(t)
	capabilities := needs(javagc.Tool) | perfNeeds()
	if capabilities.Has(system.CapSysAdmin) {
		t.Skip("kernel.perf_event_paranoid is above 2: perf events take CAP_SYS_ADMIN")
	}
	for _, root := range []bool{true, false} {
		_, stderr, code := output(t, program(t.Context(), capabilities, root, "javagc", "--duration", time.Millisecond.String()))
		said := strings.Contains(stderr, "javagc: cannot inspect ")
		missing := strings.Contains(stderr, "(missing CAP_CHECKPOINT_RESTORE, CAP_SYS_PTRACE)")
		if code != 0 || said == root || missing == root {
			t.Errorf("root %v: exit code %d, stderr %q", root, code, stderr)
		}
	}
}
