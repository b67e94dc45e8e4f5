package trace

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	return tooltest.ArgVariants([]string{"--hook", "kernel=kprobe", "--hook", "kernel_return=kprobe"})
}

// TestSystemCallFunction checks that sys_NAME is the function of the system call, with the arguments
// of the call.
func TestSystemCallFunction(t *testing.T) {
	tooltest.KernelFunctions(t)
	const calls = 7
	probe := `::sys_lseek(unsigned fd, long offset, int whence)(whence == SEEK_END && offset == 123456789) "%d %d", (int)fd, offset`
	args := []string{"-S", "--pid", fmt.Sprint(os.Getpid()), strings.Replace(probe, "SEEK_END", "2", 1)}
	res := tooltest.JSON(t, Tool, args, func() {
		for range calls {
			if _, err := unix.Seek(-1, 123456789, 2); !errors.Is(err, unix.EBADF) {
				t.Error(err)
			}
		}
	})
	if len(res.Events) != calls || res.Events[0].Object("args").Num("(int)fd") != -1 || res.Events[0].Object("args").Num("offset") != 123456789 {
		t.Errorf("rows %v, want %d with fd -1", res.Events, calls)
	}
}

// TestCompatSystemCall checks that sys_NAME includes the calls of 32-bit tasks, whose arguments are in
// other registers.
func TestCompatSystemCall(t *testing.T) {
	tooltest.KernelFunctions(t)
	const calls = 5
	path := tooltest.I386(t, nil, func(uint32) []byte {
		var code []byte
		for range calls {
			code = append(code, tooltest.Call386(19, 0xffffffff, 123456789, 2)...) // lseek
		}
		return append(code, tooltest.Exit386()...)
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", filepath.Base(path), `::sys_lseek(int fd, unsigned offset, int whence) "%d %u %d", fd, offset, whence`}, func() {
		if err := exec.Command(path).Run(); err != nil {
			t.Error(err)
		}
	})
	for _, r := range res.Events {
		args := r.Object("args")
		if args.Num("fd") != -1 || args.Num("offset") != 123456789 || args.Num("whence") != 2 || !strings.HasPrefix(r.Str("func"), "__ia32_") {
			t.Errorf("row %v", r)
		}
	}
	if len(res.Events) != calls {
		t.Errorf("%d rows, want %d", len(res.Events), calls)
	}
}

// TestSocketMember checks a member that the kernel's sources define as a macro, and a register.
func TestSocketMember(t *testing.T) {
	tooltest.KernelFunctions(t)
	receiver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	port := receiver.LocalAddr().(*net.UDPAddr).Port
	probe := fmt.Sprintf(`udp_sendmsg(struct sock *sk)(sk->sk_dport == %d && sk == %s && sk->sk_family == AF_INET) "%%d", sk->sk_bound_dev_if`,
		port>>8|port&0xff<<8, onMachine("ctx->di", "ctx->regs[0]"))
	res := tooltest.JSON(t, Tool, []string{"-S", "--pid", fmt.Sprint(os.Getpid()), "-I", "net/sock.h", probe}, func() {
		c, err := net.DialUDP("udp4", nil, receiver.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		for range 5 {
			if _, err := c.Write([]byte("x")); err != nil {
				t.Error(err)
			}
		}
	})
	if len(res.Events) != 5 || res.Events[0].Object("args").Num("sk->sk_bound_dev_if") != 0 {
		t.Errorf("%s: rows %v, want 5", probe, res.Events)
	}
}
