package opensnoop

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// apart runs f on a thread with its own file system context and mounts, which ends
// with it.
func apart(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestFullPath(t *testing.T) {
	tooltest.AnyWay(t)
	top := t.TempDir()
	for _, dir := range []string{"root/etc", "root/mnt", "cwd"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name string
		open func() error
		path string // below top
		task string // from the task's root; below top if it has not changed
	}{
		{"absolute", func() error {
			return closing(unix.Open(top+"/t1", unix.O_RDONLY, 0))
		}, "/t1", top + "/t1"},
		{"current directory", func() error {
			unix.Chdir(top + "/cwd")
			return closing(unix.Open("t2", unix.O_RDONLY, 0))
		}, "/cwd/t2", top + "/cwd/t2"},
		{"descriptor", func() error {
			at, _ := unix.Open(top+"/cwd", unix.O_PATH, 0)
			defer unix.Close(at)
			return closing(unix.Openat(at, "../t3", unix.O_RDONLY, 0))
		}, "/cwd/../t3", top + "/cwd/../t3"},
		{"mount", func() error {
			if err := unix.Mount("none", top+"/root/mnt", "tmpfs", 0, ""); err != nil {
				return nil
			}
			unix.Mkdir(top+"/root/mnt/sub", 0o755)
			unix.Chdir(top + "/root/mnt/sub")
			return closing(unix.Open("t4", unix.O_RDONLY, 0))
		}, "/root/mnt/sub/t4", top + "/root/mnt/sub/t4"},
		{"chroot", func() error {
			unix.Chroot(top + "/root")
			return closing(unix.Open("/etc/t5", unix.O_RDONLY, 0))
		}, "/root/etc/t5", "/etc/t5"},
		{"chroot, relative", func() error {
			unix.Chroot(top + "/root")
			unix.Chdir("/etc")
			return closing(unix.Open("t6", unix.O_RDONLY, 0))
		}, "/root/etc/t6", "/etc/t6"},
		{"outside of the root", func() error {
			unix.Chdir(top)
			unix.Chroot(top + "/root")
			return closing(unix.Open("t7", unix.O_RDONLY, 0))
		}, "/t7", ""},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			end := "t" + strconv.Itoa(i+1)
			res := tooltest.JSON(t, Tool, append(self(), "-F", "--columns", "+task_path", "--path", "*"+end), func() {
				apart(t, func() error {
					if err := tt.open(); err != unix.ENOENT {
						t.Errorf("open: %v", err)
					}
					return nil
				})
			})
			if len(res.Events) != 1 {
				t.Fatalf("%d rows, want 1: %v", len(res.Events), res.Events)
			}
			r := res.Events[0]
			if r.Str("path") != top+tt.path || r.Str("task_path") != tt.task {
				t.Errorf("path %q, task_path %q; want %q, %q", r.Str("path"), r.Str("task_path"), top+tt.path, tt.task)
			}
		})
	}
}
