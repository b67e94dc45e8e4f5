package trace

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestKernelFunction checks arguments of a kernel function by name and type, memory that they point
// to, and the return value. The function exists from 5.6 on.
func TestKernelFunction(t *testing.T) {
	tooltest.KernelFunctions(t)
	path := filepath.Join(t.TempDir(), "none")
	for _, attach := range kernelAttachOptions() {
		args := append(attach, "-S", "--pid", fmt.Sprint(os.Getpid()),
			fmt.Sprintf("do_sys_openat2(dfd, filename, how->flags:x, arg1 + 0) if dfd == -100 && filename == %q", path),
			"r:do_sys_openat2(retval) if retval == -2")
		res := tooltest.JSON(t, Tool, args, func() {
			if _, err := unix.Openat(unix.AT_FDCWD, path, unix.O_WRONLY, 0); !errors.Is(err, unix.ENOENT) {
				t.Error(err)
			}
		})
		calls := res.Where(func(r tooltest.Row) bool { return r.Object("args").Has("dfd") })
		returns := res.Where(func(r tooltest.Row) bool { return r.Object("args").Num("retval") == -2 })
		if len(calls) != 1 || len(returns) == 0 {
			t.Errorf("%v: rows %v", attach, res.Events)
			continue
		}
		call := calls[0].Object("args")
		if call.Num("dfd") != -100 || call.Num("arg1 + 0") != -100 || call.Str("filename") != path || call.Str("how->flags") != "0x8001" && call.Str("how->flags") != "0x20001" {
			t.Errorf("%v: arguments %v", attach, call)
		}
	}
}

func kernelAttachOptions() [][]string {
	if testing.Short() {
		return [][]string{nil}
	}
	return [][]string{nil, {"--hook", "kernel=kprobe", "--hook", "kernel_return=kprobe"}}
}
