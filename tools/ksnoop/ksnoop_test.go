package ksnoop

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// noTypes is a function with the arguments a and b that returns an int.
func noTypes(string) (*btf.FuncProto, error) {
	number := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	return &btf.FuncProto{Return: number, Params: []btf.FuncParam{{Name: "a", Type: number}, {Name: "b", Type: number}}}, nil
}

// TestParse checks which values and conditions belong to the entry and to the return.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"f":                             "entry f(a, b); return r:f(return)",
		"f(a)":                          "entry f(a)",
		"f(return)":                     "return r:f(return)",
		"f(skb->sk, return)":            "entry f(skb->sk); return r:f(return)",
		"f(skb->len > 128, skb)":        "entry f(skb->len, skb) if (skb->len > 128)",
		"f ( a==1, b != -2, return<0 )": "entry f(a, b) if (a==1) && (b != -2); return r:f(return) if (return<0)",
	} {
		f, err := parse(text, noTypes)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var got []string
		if f.entry != nil {
			got = append(got, "entry "+f.entry.Text)
		}
		if f.ret != nil {
			got = append(got, "return "+f.ret.Text)
		}
		if strings.Join(got, "; ") != want || f.hasEntryCondition != strings.Contains(want, "128") && !strings.Contains(want, "-2") ||
			f.hasReturnCondition != strings.Contains(want, "<0") {
			t.Errorf("%s: %q, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "(a)", "f(a", "c:malloc", "vfs_*", "f(a+)"} {
		if f, err := parse(text, noTypes); err == nil {
			t.Errorf("%q: %+v", text, f)
		}
	}
}

// TestInfo prints a declaration that all kernels share.
func TestInfo(t *testing.T) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		t.Skip(err)
	}
	out := tooltest.Text(t, Tool, []string{"info", "vfs_fsync", "vfs_fsync(file)"}, nil)
	if want := strings.Repeat("int vfs_fsync(struct file *file, int datasync);\n", 2); out != want {
		t.Errorf("%q, want %q", out, want)
	}
	tooltest.Fails(t, Tool, []string{"info", "no_such_function"}, 2, "no_such_function")
	tooltest.Fails(t, Tool, []string{"vfs_fsync(nothing)"}, 2, "nothing")
	tooltest.Fails(t, Tool, []string{"-s", "vfs_fsync", "vfs_fsync_range(return < 0)"}, 2, "cannot be compared")
}

// trace runs the tool for this process, and returns "FUNCTION AT NAME VALUE ..." of each row, without
// values that are addresses.
func trace(t *testing.T, load func(), args ...string) string {
	t.Helper()
	var all []string
	res := tooltest.JSON(t, Tool, append([]string{"-p", fmt.Sprint(os.Getpid())}, args...), load)
	if res.Summary.Num("lost") != 0 {
		t.Errorf("%v: %v", args, res.Summary)
	}
	for _, r := range res.Events {
		text := r.Str("func") + " " + r.Str("at")
		values := r.Object("args")
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if address, isText := values[name].(string); !isText || !strings.HasPrefix(address, "0x") {
				text += fmt.Sprint(" ", name, " ", values[name])
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

// TestCalls truncates a file and a directory, which fails, and changes the mode of the file.
// vfs_truncate calls notify_change, which the change of a mode calls too.
func TestCalls(t *testing.T) {
	tooltest.KernelFunctions(t)
	const size = 4096
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	load := func() {
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Error(err)
		}
		for _, err := range []error{unix.Truncate(path, 1000), unix.Chmod(path, 0o640)} {
			if err != nil {
				t.Error(err)
			}
		}
		if err := unix.Truncate(dir, 2000); !errors.Is(err, unix.EISDIR) {
			t.Error(err)
		}
	}
	// The file exists, so that writing it truncates it in another way: not with vfs_truncate.
	load()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"vfs_truncate"}, "vfs_truncate entry length 1000; vfs_truncate return return 0; vfs_truncate entry length 2000; vfs_truncate return return -21"},
		{[]string{"trace", "vfs_truncate(length)"}, "vfs_truncate entry length 1000; vfs_truncate entry length 2000"},
		{[]string{"vfs_truncate(return)"}, "vfs_truncate return return 0; vfs_truncate return return -21"},
		{[]string{"vfs_truncate(length, return < 0)"}, "vfs_truncate entry length 2000; vfs_truncate return return -21"},
		{[]string{"vfs_truncate(length == 1000, return)"}, "vfs_truncate entry length 1000; vfs_truncate return return 0"},
		{[]string{"vfs_truncate(length > 1000, return == 0)"}, ""},
		{[]string{"vfs_truncate(path->dentry->d_inode->i_size, length < 2000)"}, fmt.Sprintf("vfs_truncate entry length 1000 path->dentry->d_inode->i_size %d", size)},
		{[]string{"-s", "vfs_truncate(length, return)", "notify_change(return)"}, "vfs_truncate entry length 1000; notify_change return return 0; vfs_truncate return return 0"},
		{[]string{"-s", "notify_change", "vfs_truncate"}, ""},
	} {
		if got := trace(t, load, tt.args...); got != tt.want {
			t.Errorf("%v: %s\n want %s", tt.args, got, tt.want)
		}
	}
	out := tooltest.Text(t, Tool, []string{"-p", fmt.Sprint(os.Getpid()), "vfs_truncate(length == 1000, return)"}, load)
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || strings.Join(strings.Fields(lines[0]), " ") != "TIME CPU PID FUNCTION/ARGS" ||
		!strings.HasSuffix(lines[1], " vfs_truncate(length=1000)") || !strings.HasSuffix(lines[2], " vfs_truncate() return=0") {
		t.Errorf("text %q", out)
	}
}

// TestReturns counts the returns of a function in which more tasks sleep at a time than there are CPUs.
func TestReturns(t *testing.T) {
	tooltest.KernelFunctions(t)
	const processes, naps = 20, 10
	path := (&tooltest.Native{Naps: naps, Nap: 100 * time.Millisecond}).Write(t)
	dir := tooltest.Cgroup(t, "cgroup2", "corescope-ksnoop")
	res := tooltest.JSON(t, Tool, []string{"--cgroup", dir, "hrtimer_nanosleep(return)"}, func() {
		var all sync.WaitGroup
		for range processes {
			all.Go(func() {
				if out, err := tooltest.InCgroup(dir, path).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		all.Wait()
	})
	t.Logf("%d rows, summary %v", len(res.Events), res.Summary)
	tooltest.CheckTotal(t, res.Summary, len(res.Events), processes*naps)
}
