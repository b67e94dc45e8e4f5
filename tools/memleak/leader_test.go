package memleak

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// leaderEnv makes the test binary load the library with this path, exit its thread-group leader,
// and allocate in another thread once per line of standard input.
const leaderEnv = "CORESCOPE_LEADER"

func TestMain(m *testing.M) {
	path := os.Getenv(leaderEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the thread-group leader
	go allocate(path)
	unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
}

func allocate(path string) {
	lib := &native.Library{Path: path}
	if err := lib.Load("malloc"); err != nil {
		panic(err)
	}
	for !bytes.Contains(read("/proc/self/stat"), []byte(") Z ")) {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("alone")
	in := bufio.NewScanner(os.Stdin)
	for i := uint64(1); in.Scan(); i++ {
		lib.Call("malloc", native.Call{Args: [7]uint64{10}, Ret: i << 20})
		fmt.Println("done")
	}
	os.Exit(0)
}

func read(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return b
}

// TestLeader checks that tracing continues after the exit of the thread-group leader.
func TestLeader(t *testing.T) {
	tooltest.Root(t)
	tooltest.OnHooks(t, "user")
	lib := native.Write(t, t.TempDir()+"/libc.so.6", []string{"malloc"})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaderEnv+"="+lib.Path)
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
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	lines := bufio.NewScanner(out)
	lines.Scan()
	res := tooltest.JSON(t, Tool, []string{"--pid", fmt.Sprint(cmd.Process.Pid), "--obj", lib.Path, "-o", "0"}, func() {
		for range 3 {
			fmt.Fprintln(in)
			lines.Scan()
		}
	})
	if len(res.Rows) != 1 || res.Rows[0].Num("bytes") != 30 {
		t.Errorf("rows are %v, %s", res.Rows, strings.TrimSpace(res.Stderr))
	}
}
