package mdflush

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tcptest"
	"github.com/corescope/corescope/internal/tooltest"
)

// TestOtherDisk flushes a disk that is not an md disk.
func TestOtherDisk(t *testing.T) {
	l := tooltest.NewLoop(t, 0)
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid())}, func() {
		for range 5 {
			if err := unix.Fsync(int(l.Dev.Fd())); err != nil {
				t.Error(err)
			}
		}
	})
	if len(res.Events) != 0 {
		t.Errorf("rows of %s: %v", l.Name, res.Events)
	}
}

// TestFlush flushes an md disk, and does other I/O that is no flush.
func TestFlush(t *testing.T) {
	name, disk := tooltest.Striped(t, tooltest.NewLoop(t, 0).Path, tooltest.NewLoop(t, 0).Path)
	const n = 12
	res := tooltest.JSON(t, Tool, []string{"-p", strconv.Itoa(os.Getpid())}, func() {
		tooltest.ReadBlocks(t, disk, 3)
		for range n {
			if err := unix.Fsync(int(disk.Fd())); err != nil {
				t.Error(err)
			}
		}
	})
	if len(res.Events) != n {
		t.Fatalf("%d rows, want %d: %v", len(res.Events), n, res.Events)
	}
	for i, r := range res.Events {
		tcptest.Fields(t, fmt.Sprint("flush ", i), r, map[string]any{"disk": name, "pid": os.Getpid(), "comm": tcptest.Comm(), "bytes": 0})
	}
}
