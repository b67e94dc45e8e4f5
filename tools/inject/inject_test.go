package inject

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

func TestParse(t *testing.T) {
	for spec, want := range map[string]string{
		"SyS_mount()":                           " [sys_mount]",
		"(true) => SyS_mount()(true)":           "(true) [sys_mount]",
		"((true)) => a => b()":                  "((true)) [b a]",
		"mount_subtree() => btrfs_mount()":      " [btrfs_mount mount_subtree]",
		"(order == 1)":                          "(order == 1) []",
		"a(struct b *c)(c->d == 1) => e()":      " [e a(struct b *c) if (c->d == 1)]",
		"d(struct x *y, int z)(STRCMP(y, 'b'))": " [d(struct x *y, int z) if (STRCMP(y, 'b'))]",
	} {
		base, parts, err := parse(spec)
		var probes []string
		for _, p := range parts {
			probes = append(probes, p.probe())
		}
		if got := base + " [" + strings.Join(probes, " ") + "]"; got != want || err != nil {
			t.Errorf("%s is %s, want %s: %v", spec, got, want, err)
		}
	}
	for _, spec := range []string{"", "a =>", "a => (true)", "a=>b=>c=>d=>e=>f=>g=>h=>i"} {
		if _, _, err := parse(spec); err == nil {
			t.Errorf("%q is accepted", spec)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		text string
		args []string
	}{
		{"missing mode", nil},
		{"--probability", []string{"-P", "2", "kmalloc", "a()"}},
		{"--probability", []string{"-P", "0", "kmalloc", "a()"}},
		{"a part between", []string{"bio", "=> a"}},
	} {
		tooltest.Fails(t, Tool, c.args, 2, c.text)
	}
}

// fails skips the test on a kernel without kprobes, or without the function of the mode.
func fails(t *testing.T, mode string) {
	t.Helper()
	tooltest.KernelFunctions(t)
	if _, err := system.KernelSymbol("/", modes[mode].function); err != nil {
		tooltest.Fails(t, Tool, []string{"--dry-run", mode, "sys_pipe2()"}, 4, modes[mode].needs)
		t.Skipf("the kernel has no function that fails: %v", err)
	}
	if _, err := system.KernelSymbol("/", injectionSymbol); err != nil && mode == "bio" {
		res := tooltest.JSON(t, Tool, []string{"--dry-run", mode, "sys_pread64()"}, func() {})
		if !strings.Contains(res.Stderr, "CONFIG_FUNCTION_ERROR_INJECTION") {
			t.Errorf("no notice that the function can be inlined: %s", res.Stderr)
		}
		t.Skipf("should_fail_bio can be inlined (CONFIG_FUNCTION_ERROR_INJECTION): %v", err)
	}
}

// calls is the number of calls of each kind.
const calls = 20

const loadEnv = "INJECT_TEST_LOAD"

// TestMain lets the test binary be the process whose calls fail: the tool excludes its own process.
func TestMain(m *testing.M) {
	if os.Getenv(loadEnv) == "" {
		os.Exit(m.Run())
	}
	if err := serve(os.Getenv(loadEnv)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// block is a multiple of the unit in which disks are read.
const block = 4096

// serve executes the jobs that it reads, one per line, and writes the result of each.
func serve(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	page, err := pages()
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var job string
		var n int
		if _, err := fmt.Sscan(in.Text(), &job, &n); err != nil {
			return err
		}
		switch job {
		case "pread": // n blocks
			_, err = unix.Pread(fd, page[:n*block], 0)
		case "readv":
			if _, err = unix.Seek(fd, 0, io.SeekStart); err == nil {
				_, err = unix.Readv(fd, [][]byte{page[:n*block]})
			}
		case "pipe2":
			err = writePipe(nil)
		case "writev": // n parts, into one page of a new pipe
			err = writePipe([][]byte{page[:1], page[1:2]}[:n])
		case "crowd":
			err = crowd(fd, n)
		}
		fmt.Println(err)
	}
	return in.Err()
}

// pages returns memory for direct reads.
func pages() ([]byte, error) {
	return unix.Mmap(-1, 0, 2*block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// writePipe makes a pipe, and writes the parts into it.
func writePipe(parts [][]byte) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	if len(parts) == 0 {
		return nil
	}
	_, err := unix.Writev(fds[1], parts)
	return err
}

// crowd lets n threads wait in readv, which then reads from a pipe. When it has returned, each makes
// calls of other kinds.
func crowd(fd, n int) error {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	tids, results := make(chan int), make(chan error)
	for range n {
		go func() {
			runtime.LockOSThread()
			page, err := pages()
			tids <- unix.Gettid()
			if err == nil {
				_, err = unix.Readv(pipe[0], [][]byte{make([]byte, 1)})
			}
			if err == nil {
				_, err = unix.Pread(fd, page, 0)
			}
			results <- errors.Join(err, writePipe([][]byte{page[:1]}))
		}()
	}
	for range n {
		if err := awaitCall(<-tids, unix.SYS_READV); err != nil {
			return err
		}
	}
	_, err := unix.Write(pipe[1], make([]byte, n))
	for range n {
		err = errors.Join(err, <-results)
	}
	return err
}

// awaitCall waits until the thread waits in the system call.
func awaitCall(tid, call int) error {
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/syscall", tid))
		if err != nil || strings.HasPrefix(string(text), fmt.Sprintf("%d ", call)) {
			return err
		}
		runtime.Gosched()
	}
}

// load is a process that executes jobs.
type load struct {
	pid string
	in  io.Writer
	out *bufio.Scanner
}

func startLoad(t *testing.T) *load {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 2*block)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), loadEnv+"="+path)
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
	l := &load{strconv.Itoa(cmd.Process.Pid), in, bufio.NewScanner(out)}
	l.must(t, "pread 1") // finds where the file is on the disk
	return l
}

// do executes a job and returns the result.
func (l *load) do(t *testing.T, job string) string {
	t.Helper()
	if _, err := fmt.Fprintln(l.in, job); err != nil || !l.out.Scan() {
		t.Errorf("no result of %s: %v", job, err)
	}
	return l.out.Text()
}

// must executes jobs that work.
func (l *load) must(t *testing.T, jobs ...string) {
	t.Helper()
	for _, job := range jobs {
		if result := l.do(t, job); result != "<nil>" {
			t.Errorf("%s: %s", job, result)
		}
	}
}

// rows returns the number of rows of the processes in a dry run.
func rows(t *testing.T, args []string, loads []*load, jobs func()) (n []int) {
	t.Helper()
	res := tooltest.JSON(t, Tool, append([]string{"--dry-run"}, args...), jobs)
	for _, l := range loads {
		n = append(n, len(res.Where(func(r tooltest.Row) bool {
			return strconv.Itoa(int(r.Num("pid"))) == l.pid && r["injected"] == false
		})))
	}
	return n
}

// TestChain compares the number of rows with that of calls. A direct read is one block I/O request,
// and what a pipe holds is one page. Calls and arguments that the chain does not name have no rows, nor
// have other processes.
func TestChain(t *testing.T) {
	for mode, specs := range map[string]map[string]int{
		"bio": {
			"(true)":                        3 * calls,
			"sys_readv()":                   calls,
			"(true) => SyS_pread64()(true)": 2 * calls,
			"submit_bio() => sys_pread64()(arg3 == 4096)":                   calls,
			"(bio->bi_iter.bi_size == 8192) => sys_pread64()":               calls,
			"(bio->bi_iter.bi_size == 4096) => sys_pread64()(arg3 == 8192)": 0,
			"sys_pread64() => submit_bio()":                                 0, // in the wrong order
			"sys_readv() => sys_pread64()":                                  0,
		},
		"alloc_page": {
			"sys_readv()":  0,
			"sys_writev()": 2 * calls,
			"pipe_write() => sys_writev()(arg3 == 1)": calls,
			"(order == 0) => sys_writev()(arg3 == 2)": calls,
			"(order == 1) => sys_writev()":            0,
			"sys_writev() => pipe_write()":            0,
		},
	} {
		t.Run(mode, func(t *testing.T) {
			fails(t, mode)
			loads := []*load{startLoad(t), startLoad(t)}
			jobs := func() {
				for range calls {
					for _, l := range loads {
						l.must(t, "pread 1", "readv 1", "pread 2", "writev 1", "pipe2 0", "writev 2")
					}
				}
			}
			for spec, want := range specs {
				if n := rows(t, []string{"--pid", loads[0].pid, mode, spec}, loads, jobs); n[0] != want || n[1] != 0 {
					t.Errorf("%s: %d rows, and %d of another process, want %d and none", spec, n[0], n[1], want)
				}
			}
			call := map[string]string{"bio": "sys_pread64()", "alloc_page": "sys_writev()"}[mode]
			if n := rows(t, []string{mode, call}, loads, jobs); n[0] != 2*calls || n[1] != 2*calls {
				t.Errorf("without a filter: %d rows, want %d of each process", n, 2*calls)
			}
			if n := rows(t, []string{"--pid", loads[0].pid, "-c", "3", mode, call}, loads, jobs); n[0] != 3 {
				t.Errorf("with -c 3: %d rows", n[0])
			}
		})
	}
}

// TestMissedReturns checks that a call ends also if the kernel misses its return, because more threads
// wait for theirs than it keeps.
func TestMissedReturns(t *testing.T) {
	for mode, want := range map[string]int{"bio": calls, "alloc_page": 0} {
		t.Run(mode, func(t *testing.T) {
			fails(t, mode)
			l := startLoad(t)
			n := rows(t, []string{"--pid", l.pid, mode, "sys_readv()"}, []*load{l}, func() {
				l.must(t, "crowd 40")
				for range calls {
					l.must(t, "pread 1", "readv 1", "writev 1")
				}
			})
			if n[0] != want {
				t.Errorf("%d rows, want %d: readv reads the file %[2]d times", n[0], want)
			}
		})
	}
}

// TestCondition checks a condition on the arguments of the failing function.
func TestCondition(t *testing.T) {
	fails(t, "kmalloc")
	l := startLoad(t)
	for spec, want := range map[string]bool{
		"(gfpflags != 0) => sys_pipe2()": true, "(gfpflags == 0) => sys_pipe2()": false, "sys_pipe2()(arg2 == O_CLOEXEC)": true,
		"sys_pipe2()(arg2 == 1)": false,
	} {
		if n := rows(t, []string{"--pid", l.pid, "kmalloc", spec}, []*load{l}, func() { l.must(t, "pipe2 0") }); (n[0] > 0) != want {
			t.Errorf("%s: %d rows, want some: %v", spec, n[0], want)
		}
	}
}

// injects skips the test on a kernel that does not permit to change results, where the tool says so.
func injects(t *testing.T, args ...string) {
	t.Helper()
	if canOverride() != nil {
		tooltest.Fails(t, Tool, args, 4, "CONFIG_BPF_KPROBE_OVERRIDE")
		t.Skip("the kernel has no CONFIG_BPF_KPROBE_OVERRIDE")
	}
}

// TestInject makes calls of one of two processes fail, and checks that they work again.
func TestInject(t *testing.T) {
	for _, c := range []struct {
		mode, job, spec string
		result          error
		most            string
		want            int
	}{
		{"kmalloc", "pipe2 0", "sys_pipe2()", unix.ENFILE, "1000", calls}, // what get_pipe_inode() makes of it
		{"alloc_page", "writev 1", "sys_writev()", unix.ENOMEM, "1000", calls},
		{"alloc_page", "writev 1", "sys_writev()(arg3 == 2)", unix.ENOMEM, "1000", 0},
		{"bio", "pread 1", "sys_pread64()(arg3 == 4096)", unix.EIO, "1000", calls},
		{"bio", "pread 1", "sys_pread64()(arg3 == 8192)", unix.EIO, "1000", 0},
		{"bio", "pread 1", "submit_bio() => sys_pread64()", unix.EIO, "3", 3},
	} {
		t.Run(c.mode+" "+c.spec, func(t *testing.T) {
			fails(t, c.mode)
			l, other := startLoad(t), startLoad(t)
			args := []string{"--pid", l.pid, "-c", c.most, c.mode, c.spec}
			injects(t, args...)
			failed := 0
			res := tooltest.JSON(t, Tool, args, func() {
				for range calls {
					switch result := l.do(t, c.job); result {
					case "<nil>":
					case c.result.Error():
						failed++
					default:
						t.Errorf("%s: %s", c.job, result)
					}
					l.must(t, "readv 1")
					other.must(t, c.job)
				}
			})
			injected := res.Where(func(r tooltest.Row) bool { return r["injected"] == true })
			if failed != c.want || len(res.Events) != c.want || len(injected) != c.want {
				t.Errorf("%d calls failed, %d rows of which %d injected, want %d", failed, len(res.Events), len(injected), c.want)
			}
			l.must(t, c.job)
		})
	}
}
