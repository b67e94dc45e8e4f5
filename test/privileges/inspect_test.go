package privileges

import (
	"strings"
	"testing"
	"time"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/tools/javagc"
)

// Without the necessary capabilities, a tool reports at the start how many processes it cannot
// inspect. Root does not get this notice, because no capability is missing.
func TestUninspected(t *testing.T) {
	needsRoot(t)
	capabilities := needs(javagc.Tool) | perfNeeds()
	if capabilities.Has(system.CapSysAdmin) {
		t.Skip("kernel.perf_event_paranoid is above 2: perf events take CAP_SYS_ADMIN")
	}
	for _, root := range []bool{true, false} {
		_, stderr, code := output(t, program(t.Context(), capabilities, root, "javagc", "--duration", time.Millisecond.String()))
		reported := strings.Contains(stderr, "javagc: cannot inspect ")
		missing := strings.Contains(stderr, "(missing CAP_CHECKPOINT_RESTORE, CAP_SYS_PTRACE)")
		if code != 0 || reported == root || missing == root {
			t.Errorf("root %v: exit code %d, stderr %q", root, code, stderr)
		}
	}
}
