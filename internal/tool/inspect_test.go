package tool

import (
	"fmt"
	"os"
	"testing"

	"github.com/corescope/corescope/internal/system"
)

func TestUninspected(t *testing.T) {
	own := uint32(os.Getpid())
	name := fmt.Sprintf("%d (%s)", own, commOf(own))
	for _, tt := range []struct {
		pids    []uint32
		missing system.Capabilities
		want    string
	}{
		{[]uint32{own}, 0, "cannot inspect process " + name + " (the kernel hides it): libraries that only it maps are not traced"},
		{[]uint32{own, own}, 0, "cannot inspect 2 processes: " + name + ", " + name + " (the kernel hides them): libraries that only they map are not traced"},
		{
			[]uint32{own, own, own, own}, system.Set(system.CapSysPtrace),
			"cannot inspect 4 processes: " + name + ", " + name + ", " + name + ", ... (missing CAP_SYS_PTRACE): libraries that only they map are not traced",
		},
		{[]uint32{4 << 20}, 0, "cannot inspect process 4194304 (?) (the kernel hides it): libraries that only it maps are not traced"},
	} {
		if got := uninspected(tt.pids, tt.missing); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
