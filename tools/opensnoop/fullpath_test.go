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

// isolated runs f on a thread with its own file system context and mounts, which exits afterwards.
func isolated(t *testing.T, f func() error) {
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
	tooltest.AnyAttachType(t)
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
		task string // from the task's root; below top if that is unchanged
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
				isolated(t, func() error {
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

// A relative path has no directory if its directory descriptor is not open.
func TestFullPathOfNoDirectory(t *testing.T) {
	tooltest.AnyAttachType(t)
	const closed = 1 << 20
	res := tooltest.JSON(t, Tool, append(self(), "-F", "--columns", "+task_path", "--path", "*below-nothing"), func() {
		if err := closing(unix.Openat(closed, "below-nothing", unix.O_RDONLY, 0)); err != unix.EBADF {
			t.Errorf("openat: %v, want %v", err, unix.EBADF)
		}
		if err := closing(unix.Openat(closed, "/below-nothing", unix.O_RDONLY, 0)); err != unix.ENOENT {
			t.Errorf("openat: %v, want %v", err, unix.ENOENT)
		}
	})
	if len(res.Events) != 2 {
		t.Fatalf("%d rows, want 2: %v", len(res.Events), res.Events)
	}
	for i, want := range []string{"below-nothing", "/below-nothing"} {
		if got := res.Events[i].Str("path"); got != want {
			t.Errorf("path is %q, want %q", got, want)
		}
	}
	if res.Events[0].Has("task_path") {
		t.Errorf("task_path of a path without directory is %q", res.Events[0].Str("task_path"))
	}
}

// The path of a row leads to the opened file, although paths in a chroot can contain ".." above its
// root, where the kernel stays at the root.
func TestFullPathStaysInRoot(t *testing.T) {
	tooltest.AnyAttachType(t)
	top := t.TempDir()
	for _, dir := range []string{"etc", "root/etc/deep"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"etc/above", "root/etc/above"} {
		if err := os.WriteFile(filepath.Join(top, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		"above", "../etc/above", "../../../etc/above", "/../../etc/above", "./.././../etc/above", "deep/../../../etc/above",
	} {
		t.Run(path, func(t *testing.T) {
			var opened unix.Stat_t
			res := tooltest.JSON(t, Tool, append(self(), "-F", "--path", "*above"), func() {
				isolated(t, func() error {
					unix.Chroot(top + "/root")
					unix.Chdir("/etc")
					fd, err := unix.Open(path, unix.O_RDONLY, 0)
					if err != nil {
						return err
					}
					defer unix.Close(fd)
					return unix.Fstat(fd, &opened)
				})
			})
			if len(res.Events) != 1 {
				t.Fatalf("%d rows, want 1: %v", len(res.Events), res.Events)
			}
			var shown unix.Stat_t
			if err := unix.Stat(res.Events[0].Str("path"), &shown); err != nil || shown.Ino != opened.Ino || shown.Dev != opened.Dev {
				t.Errorf("path %q is inode %d (%v), and inode %d was opened", res.Events[0].Str("path"), shown.Ino, err, opened.Ino)
			}
		})
	}
}
