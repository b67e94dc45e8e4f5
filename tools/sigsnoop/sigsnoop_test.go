package sigsnoop

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// helper tells a child of the test to wait for the end of standard input.
const helper = "CORESCOPE_SIGNALS"

func TestMain(m *testing.M) {
	if os.Getenv(helper) != "" {
		signal.Ignore(unix.SIGUSR1)
		signal.Notify(make(chan os.Signal, 1), unix.SIGUSR2)
		os.Stdout.WriteString("ready\n")
		os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(m.Run())
}

// start starts a child that ignores SIGUSR1 and handles SIGUSR2, in the process group pgid, or in a
// new one for 0.
func start(t *testing.T, pgid int) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helper+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: pgid}
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
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// onThread runs f on a thread that ends with it, so that its pending signals are discarded.
func onThread(f func()) {
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// mask blocks or unblocks a signal in this thread.
func mask(t *testing.T, how int, sig syscall.Signal) {
	var set unix.Sigset_t
	set.Val[0] = 1 << (sig - 1)
	if err := unix.PthreadSigmask(how, &set, nil); err != nil {
		t.Error(err)
	}
}

// raise sends a signal to this thread.
func raise(sig syscall.Signal) { unix.Tgkill(os.Getpid(), unix.Gettid(), sig) }

// raiseIgnored sends SIGUSR1 to this thread, which ignores it. A blocked signal is not ignored.
func raiseIgnored(t *testing.T) {
	signal.Ignore(unix.SIGUSR1)
	defer signal.Reset(unix.SIGUSR1)
	mask(t, unix.SIG_UNBLOCK, unix.SIGUSR1)
	raise(unix.SIGUSR1)
}

// ret returns the return value of a system call as the kernel has it.
func ret(_, _ uintptr, errno syscall.Errno) int { return -int(errno) }

// TestResults sends signals that are ignored, delivered and already pending.
func TestResults(t *testing.T) {
	child := start(t, 0).Process.Pid
	tid := 0
	res := tooltest.JSON(t, Tool, append(self(), "-s", "USR1,SIGUSR2"), func() {
		unix.Kill(child, unix.SIGUSR2)
		onThread(func() {
			tid = unix.Gettid()
			mask(t, unix.SIG_BLOCK, unix.SIGUSR2)
			raise(unix.SIGUSR2)
			raise(unix.SIGUSR2)
			raiseIgnored(t)
		})
	})
	want := []string{
		fmt.Sprint("SIGUSR2 12 ", child, child, true, 0, "delivered"),
		fmt.Sprint("SIGUSR2 12 ", os.Getpid(), tid, false, -6, "delivered"),
		fmt.Sprint("SIGUSR2 12 ", os.Getpid(), tid, false, -6, "already_pending"),
		fmt.Sprint("SIGUSR1 10 ", os.Getpid(), tid, false, -6, "ignored"),
	}
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Str("signal"), " ", int(r.Num("sig")), " ", int(r.Num("target_pid")), int(r.Num("target_tid")),
			r["to_process"], int(r.Num("si_code")), r.Str("result")))
		if int(r.Num("pid")) != os.Getpid() || r["from_kernel"] != false || r.Str("target_comm") == "" || r.Has("ret") || r.Has("target") {
			t.Errorf("row: %v", r)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestKernel provokes signals of the kernel: for the exit of a child, and for a closed pipe.
func TestKernel(t *testing.T) {
	var child int
	mine := fmt.Sprintf("target_pid == %d", os.Getpid())
	res := tooltest.JSON(t, Tool, []string{"--filter", mine, "-s", "CHLD,PIPE"}, func() {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^$")
		if err := cmd.Run(); err != nil {
			t.Error(err)
		}
		child = cmd.Process.Pid
		var p [2]int
		if err := unix.Pipe(p[:]); err != nil {
			t.Fatal(err)
		}
		unix.Close(p[0])
		unix.Write(p[1], []byte{0})
		unix.Close(p[1])
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Str("signal"), " ", int(r.Num("pid")), " ", r["from_kernel"]))
	}
	slices.Sort(got)
	want := []string{fmt.Sprint("SIGCHLD ", child, " true"), fmt.Sprint("SIGPIPE ", os.Getpid(), " true")}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTimer expects no sender for the signal of a timer, which expires in an interrupt.
func TestTimer(t *testing.T) {
	alarm := make(chan os.Signal, 1)
	signal.Notify(alarm, unix.SIGALRM)
	defer signal.Stop(alarm)
	mine := fmt.Sprintf("target_pid == %d", os.Getpid())
	res := tooltest.JSONUndisturbed(t, Tool, []string{"--filter", mine, "-s", "14"}, func() {
		once := unix.Itimerval{Value: unix.Timeval{Usec: 1000}}
		if _, err := unix.Setitimer(unix.ITIMER_REAL, once); err != nil {
			t.Error(err)
			return
		}
		<-alarm
	})
	if len(res.Events) != 1 {
		t.Fatalf("%d rows, want 1: %v", len(res.Events), res.Events)
	}
	if r := res.Events[0]; r.Num("pid") != 0 || r.Str("comm") != "" || r["from_kernel"] != true || r.Num("uid") != 1<<32-1 {
		t.Errorf("row: %v", r)
	}
}

// TestCalls compares each call with the result that it had.
func TestCalls(t *testing.T) {
	first := start(t, 0).Process.Pid
	group := []int{first, start(t, first).Process.Pid, start(t, first).Process.Pid}
	name := comm(t, first)
	none := 0x3fffffff // larger than any PID
	type call struct {
		syscall     string
		sig, target int
		pid         int // target process, 0 if the call sends no signal
		targets     int
		ret         int
	}
	var want []call
	res := tooltest.JSON(t, Tool, append(self(), "--kill"), func() {
		onThread(func() {
			add := func(c call, r int) {
				c.ret = r
				want = append(want, c)
			}
			usr1 := uintptr(unix.SIGUSR1)
			pid := uintptr(first)
			info := queued()
			add(call{"kill", 10, first, first, 1, 0}, ret(unix.RawSyscall(unix.SYS_KILL, pid, usr1, 0)))
			add(call{"kill", 0, first, 0, 0, 0}, ret(unix.RawSyscall(unix.SYS_KILL, pid, 0, 0)))
			add(call{"kill", 10, -first, first, 3, 0}, ret(unix.RawSyscall(unix.SYS_KILL, -pid, usr1, 0)))
			add(call{"kill", 9, none, 0, 0, 0}, ret(unix.RawSyscall(unix.SYS_KILL, uintptr(none), 9, 0)))
			add(call{"kill", 100, first, 0, 0, 0}, ret(unix.RawSyscall(unix.SYS_KILL, pid, 100, 0)))
			add(call{"kill", -1, first, 0, 0, 0}, ret(unix.RawSyscall(unix.SYS_KILL, pid, ^uintptr(0), 0)))
			add(call{"tkill", 10, first, first, 1, 0}, ret(unix.RawSyscall(unix.SYS_TKILL, pid, usr1, 0)))
			add(call{"tgkill", 10, first, first, 1, 0}, ret(unix.RawSyscall(unix.SYS_TGKILL, pid, pid, usr1)))
			add(call{"tgkill", 10, first, 0, 0, 0}, ret(unix.RawSyscall(unix.SYS_TGKILL, pid, uintptr(os.Getpid()), usr1)))
			add(call{"rt_sigqueueinfo", 10, first, first, 1, 0}, ret(unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, pid, usr1, info)))
			add(call{"rt_tgsigqueueinfo", 10, first, first, 1, 0}, ret(unix.RawSyscall6(unix.SYS_RT_TGSIGQUEUEINFO, pid, pid, usr1, info, 0, 0)))
			fd, err := unix.PidfdOpen(first, 0)
			if err != nil {
				t.Error(err)
			}
			add(call{"pidfd_send_signal", 10, fd, first, 1, 0}, ret(unix.RawSyscall6(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(fd), usr1, 0, 0, 0, 0)))
			unix.Close(fd)
		})
	})
	var got []call
	for _, r := range res.Events {
		if r.Num("sig") == float64(unix.SIGURG) { // of the Go runtime
			continue
		}
		if r.Num("target") < 0 && slices.Contains(group, int(r.Num("target_pid"))) {
			r["target_pid"] = float64(first)
		}
		got = append(got, call{
			r.Str("syscall"), int(r.Num("sig")), int(r.Num("target")), int(r.Num("target_pid")), int(r.Num("targets")), int(r.Num("ret")),
		})
		if sent := r.Has("target_comm"); sent != r.Has("target_pid") || sent && r.Str("target_comm") != name {
			t.Errorf("target of %v, want %s", r, name)
		}
		if failed := r.Num("ret") < 0; failed != r.Has("error") || r.Has("result") || r.Has("si_code") {
			t.Errorf("row: %v", r)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// queued returns the address of information for rt_sigqueueinfo.
func queued() uintptr {
	info := new([128]byte)
	*(*int32)(unsafe.Pointer(&info[8])) = -1 // SI_QUEUE
	return uintptr(unsafe.Pointer(info))
}

func comm(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func TestCompat(t *testing.T) {
	prog := tooltest.I386(t, nil, func(uint32) []byte {
		return slices.Concat(tooltest.Call386(37, 0, 0), tooltest.Call386(37, 0x3fffffff, 9), tooltest.Call386(238, 0x3fffffff, 64),
			tooltest.Call386(270, 1, 0x3fffffff, 15), tooltest.Exit386())
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386", "-k"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Str("syscall"), " ", r.Num("sig"), " ", int(r.Num("target")), " ", r.Str("error")))
	}
	want := []string{"kill 0 0 ", "kill 9 1073741823 ESRCH", "tkill 64 1073741823 ESRCH", "tgkill 15 1 ESRCH"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	pid := strconv.Itoa(os.Getpid())
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-T", pid}, "[10 12]"},
		{[]string{"-T", pid, "-s", "12"}, "[12]"},
		{[]string{"-T", pid, "-x"}, "[10]"},
		{[]string{"-T", "1"}, "[]"},
		{[]string{"-T", pid, "-k"}, "[10 12 100]"},
		{[]string{"-T", pid, "-k", "-x"}, "[100]"},
		{[]string{"-T", "1", "-k"}, "[]"},
	} {
		res := tooltest.JSON(t, Tool, append(self(), tt.args...), func() {
			onThread(func() {
				raiseIgnored(t)
				mask(t, unix.SIG_BLOCK, unix.SIGUSR2)
				raise(unix.SIGUSR2)
				raise(100)
			})
		})
		got := []float64{}
		for _, r := range res.Events {
			if sig := r.Num("sig"); sig != float64(unix.SIGURG) { // of the Go runtime
				got = append(got, sig)
			}
		}
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%q: got %v, want %s", tt.args, got, tt.want)
		}
	}
	tooltest.Fails(t, Tool, []string{"-s", "SIGNONE"}, 2, "unknown signal")
	tooltest.Fails(t, Tool, []string{"-s", "0"}, 2, "--kill")
}

// TestTarget selects the calls that mean a process, however they name it.
func TestTarget(t *testing.T) {
	first := start(t, 0).Process.Pid
	member, other := start(t, first).Process.Pid, start(t, 0).Process.Pid
	var fd int
	kill := func(pid, sig int) { unix.RawSyscall(unix.SYS_KILL, uintptr(pid), uintptr(sig), 0) }
	res := tooltest.JSON(t, Tool, append(self(), "-k", "-T", strconv.Itoa(member), "-s", "0,usr1,sigrtmax"), func() {
		onThread(func() {
			var err error
			if fd, err = unix.PidfdOpen(member, 0); err != nil {
				t.Error(err)
			}
			otherFD, err := unix.PidfdOpen(other, 0)
			if err != nil {
				t.Error(err)
			}
			for _, sig := range []int{0, int(unix.SIGUSR1)} {
				kill(member, sig)
				kill(-first, sig)
				unix.RawSyscall6(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(fd), uintptr(sig), 0, 0, 0, 0)
				kill(other, sig)
				kill(-other, sig)
				unix.RawSyscall6(unix.SYS_PIDFD_SEND_SIGNAL, uintptr(otherFD), uintptr(sig), 0, 0, 0, 0)
			}
			unix.RawSyscall(unix.SYS_TGKILL, uintptr(other), uintptr(member), uintptr(unix.SIGUSR1)) // no such thread
			kill(member, int(unix.SIGUSR2))
			unix.Close(fd)
			unix.Close(otherFD)
		})
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Str("syscall"), " ", int(r.Num("target")), " ", int(r.Num("sig")), " ", r.Num("ret") == 0))
	}
	want := []string{
		fmt.Sprint("kill ", member, " 0 true"), fmt.Sprint("kill ", -first, " 0 true"), fmt.Sprint("pidfd_send_signal ", fd, " 0 true"),
		fmt.Sprint("kill ", member, " 10 true"), fmt.Sprint("kill ", -first, " 10 true"), fmt.Sprint("pidfd_send_signal ", fd, " 10 true"),
		fmt.Sprint("tgkill ", other, " 10 false"),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestTargetInNamespace selects the calls of a shell in another PID namespace, where it is process 1.
func TestTargetInNamespace(t *testing.T) {
	tooltest.Root(t)
	cmd := exec.Command("sh", "-c", "read x; kill -0 1; kill -0 $$; kill -WINCH 1; kill -0 2")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	res := tooltest.JSON(t, Tool, []string{"-k", "-p", pid, "-T", pid}, func() {
		in.Close()
		_ = cmd.Wait()
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, fmt.Sprint(r.Num("target"), " ", r.Num("sig"), " ", r.Num("ret")))
	}
	if want := []string{"1 0 0", "1 0 0", "1 28 0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestQueueFull expects that a signal which does not fit in the queue is not counted.
func TestQueueFull(t *testing.T) {
	child := start(t, 0).Process.Pid
	res := tooltest.JSON(t, Tool, append(self(), "-k", "-s", "sigrtmin+1"), func() {
		onThread(func() {
			var old unix.Rlimit
			// The limit of the target counts, and that of a new user ID is not used up.
			if err := unix.Prlimit(child, unix.RLIMIT_SIGPENDING, &unix.Rlimit{}, &old); err != nil {
				t.Error(err)
			}
			info := queued()
			if got := ret(unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(child), 35, info)); got != -int(unix.EAGAIN) {
				t.Errorf("rt_sigqueueinfo: %d", got)
			}
		})
	})
	if len(res.Events) != 1 || res.Events[0].Num("targets") != 0 || res.Events[0].Num("target_pid") != float64(child) || res.Events[0].Str("error") != "EAGAIN" {
		t.Errorf("rows %v, want one without a signal sent", res.Events)
	}
}

func TestText(t *testing.T) {
	tooltest.AnyAttachType(t)
	child := start(t, 0).Process.Pid
	for _, tt := range []struct{ flag, want string }{
		{"-n", "SIGUSR2 %d exe delivered"},
		{"-k", "12 %d exe 0"},
	} {
		text := tooltest.Text(t, Tool, append(self(), tt.flag, "-s", "12"), func() { unix.Kill(child, unix.SIGUSR2) })
		lines := strings.Split(text, "\n")
		if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME PID COMM SIG TPID TCOMM RESULT" {
			t.Errorf("header is %q", got)
		}
		if got := strings.Join(strings.Fields(lines[1]), " "); !strings.HasSuffix(got, fmt.Sprintf(tt.want, child)) {
			t.Errorf("row is %q", got)
		}
	}
}
