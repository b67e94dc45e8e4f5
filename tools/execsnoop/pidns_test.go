package execsnoop

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

// In a child PID namespace --ppid has its IDs, rows have those of the initial namespace. If /proc
// belongs to another namespace, --ppid is refused.
func TestPIDNamespace(t *testing.T) {
	if !tooltest.InNamespaces(t, unix.CLONE_NEWPID) {
		return
	}
	self := os.Getpid()
	res := tooltest.JSON(t, Tool, []string{"--ppid", strconv.Itoa(self)}, func() {
		if err := exec.Command("true").Run(); err != nil {
			t.Error(err)
		}
	})
	if len(res.Events) != 1 || res.Events[0].Str("comm") != "true" || int(res.Events[0].Num("ppid")) == self {
		t.Errorf("rows %v, want one of true, whose parent has another PID than %d", res.Events, self)
	}

	if err := unix.Unmount("/proc", 0); err != nil { // the /proc of the initial namespace is mounted below
		t.Fatal(err)
	}
	tooltest.Fails(t, Tool, []string{"--ppid", "1"}, tool.ExitUsage, "/proc belongs to another PID namespace")
}
