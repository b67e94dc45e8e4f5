package argdist

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestKernelCall checks the arguments at the entry, the return value and the duration of calls in the
// kernel.
func TestKernelCall(t *testing.T) {
	tooltest.KernelFunctions(t)
	path := (&tooltest.Native{Naps: 4, Nap: 20 * time.Millisecond}).Write(t)
	prefix := "__x64_sys_"
	if runtime.GOARCH == "arm64" {
		prefix = "__arm64_sys_"
	}
	self := []string{"--pid", fmt.Sprint(os.Getpid())}
	native := []string{"--comm", "native"}
	for _, c := range []struct {
		tasks       []string
		probe, want string
	}{
		{self, "r::sys_lseek(unsigned fd, long offset):int,long,int:$entry(fd),$entry(offset),$retval:$entry(offset) > 123400",
			"4 × " + prefix + "lseek[$entry(fd):-1 $entry(offset):123456 $retval:-9]"},
		{native, "r::sys_nanosleep():u64,char*:$latency / 20000000 > 0,$COMM", "4 × " + prefix + "nanosleep[$COMM:native $latency / 20000000 > 0:1]"},
		{native, "r::sys_nanosleep():int:$PID:$latency < 20000000", ""},
	} {
		for _, attach := range [][]string{nil, {"--hook", "kernel_call=kprobe"}} {
			args := append(append(attach, c.tasks...), "-i", "60", "-C", c.probe)
			res := tooltest.JSON(t, Tool, args, func() {
				for range 4 {
					if _, err := unix.Seek(-1, 123456, 2); !errors.Is(err, unix.EBADF) {
						t.Error(err)
					}
				}
				run(t, path)
			})
			if got := counted(res); got != c.want {
				t.Errorf("%v %s: %s, want %s: %v", attach, c.probe, got, c.want, res.Summary)
			}
		}
	}
}
