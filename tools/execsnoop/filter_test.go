package execsnoop

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// TestFilters runs three programs and identifies the rows by their last argument.
func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	target, echo := program(t, "true"), program(t, "echo")
	mark := fmt.Sprintf("mark%d", os.Getpid())
	load := func() {
		run(t, exec.Command(target, mark+"A"))
		run(t, exec.Command(echo, "two", "words", mark+"B"))
		nobody := exec.Command(target, mark+"C")
		nobody.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321}}
		run(t, nobody)
	}
	self := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "ABC"},
		{[]string{"--comm", "true"}, "AC"},
		{[]string{"--comm", "tr*"}, "AC"},
		{[]string{"-u", "54321"}, "C"},
		{[]string{"--uid", "root"}, "AB"},
		{[]string{"-P", self}, "ABC"},
		{[]string{"--ppid", "1"}, ""},
		{[]string{"--pid", self}, ""},
		{[]string{"-n", "ech"}, "B"},
		{[]string{"-n", mark + "A"}, "A"},
		{[]string{"-n", "two words"}, ""},
		{[]string{"-l", "two words"}, "B"},
		{[]string{"-l", "/true " + mark}, "AC"},
		{[]string{"-l", "two words", "-n", "true"}, ""},
		{[]string{"-n", "^ec.o$"}, "B"},
		{[]string{"-n", "^wor$"}, ""},
		{[]string{"-l", "t.o words " + mark + "[B-Z]$"}, "B"},
		{[]string{"--filter", `uid == 0 and comm matches "^t" and len(args) == 2`}, "A"},
		{[]string{"--filter", `any(args, # == "words")`}, "B"},
		{[]string{"--filter", `exe endsWith "/echo"`}, "B"},
		{[]string{"--filter", `cwd == "/nowhere"`}, ""},
	} {
		res := tooltest.JSON(t, Tool, c.args, load)
		got := ""
		for _, r := range res.Events {
			if args := argsOf(t, r); len(args) > 1 && strings.HasPrefix(args[len(args)-1], mark) {
				got += strings.TrimPrefix(args[len(args)-1], mark)
			}
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.args, got, c.want)
		}
	}
}

// TestPID selects one of two processes that exist before the start of the tool.
func TestPID(t *testing.T) {
	tooltest.OnHooks(t, "exec")
	target := program(t, "true")
	var cmds []*exec.Cmd
	var release []func()
	for range 2 {
		cmd := by(t, "wait", target)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Wait() })
		out.Read(make([]byte, 1)) // the program has been executed
		cmds = append(cmds, cmd)
		release = append(release, func() { in.Write([]byte{'.'}) })
	}
	for i, flag := range []string{"--pid", "--tid"} {
		pid := cmds[i].Process.Pid
		res := tooltest.JSON(t, Tool, []string{flag, strconv.Itoa(pid), "--limit", "1"}, func() {
			if i == 0 {
				run(t, exec.Command(target))
			}
			release[i]()
			cmds[i].Wait()
		})
		if len(res.Events) != 1 || int(res.Events[0].Num("pid")) != pid {
			t.Errorf("%s %d: %v", flag, pid, res.Events)
		}
	}
}

func TestCgroup(t *testing.T) {
	tooltest.AnyAttachType(t)
	target := program(t, "true")
	for _, hierarchy := range []string{"cgroup2", "memory"} {
		t.Run(hierarchy, func(t *testing.T) {
			name := fmt.Sprintf("corescope-execsnoop-%d", os.Getpid())
			below := tooltest.Cgroup(t, hierarchy, name+"/below")
			inside := tooltest.Cgroup(t, hierarchy, name)
			sibling := tooltest.Cgroup(t, hierarchy, name+"-sibling")
			res := tooltest.JSON(t, Tool, []string{"-c", inside}, func() {
				for _, dir := range []string{inside, below, sibling} {
					run(t, tooltest.InCgroup(dir, target, dir))
				}
			})
			var got []string
			for _, r := range res.Events {
				dir := argsOf(t, r)[1]
				got = append(got, dir)
				var st unix.Stat_t
				if err := unix.Stat(dir, &st); err != nil || uint64(r.Num("cgroup_id")) != st.Ino {
					t.Errorf("cgroup_id is %v, inode of %s is %d, %v", r["cgroup_id"], dir, st.Ino, err)
				}
			}
			if !slices.Equal(got, []string{inside, below}) {
				t.Errorf("execs in cgroups %q, want %q and %q", got, inside, below)
			}
		})
	}
}
