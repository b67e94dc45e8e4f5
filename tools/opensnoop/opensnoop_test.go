package opensnoop

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

// below returns the rows whose path as given by the task has this prefix.
func below(dir string) func(tooltest.Row) bool {
	return func(r tooltest.Row) bool { return strings.HasPrefix(r.Str("path"), dir) }
}

func closing(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func TestEveryCall(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	at, err := unix.Open(dir, unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	res := tooltest.JSON(t, Tool, self(), func() {
		closing(unix.Open(file("openat"), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o640))
		closing(unix.Open(file("missing"), unix.O_RDONLY, 0))
		closing(unix.Openat(at, "relative", unix.O_CREAT|unix.O_RDWR|unix.O_EXCL, 0o4755))
		closing(unix.Openat2(at, "how", &unix.OpenHow{Flags: unix.O_CREAT | unix.O_APPEND, Mode: 0o600}))
		closing(creat(file("creat"), 0o111))
	})
	want := []struct {
		path, error, mode string
		flags             []string
		dirfd             int
	}{
		{file("openat"), "", "0640", []string{"O_WRONLY", "O_CREAT", "O_CLOEXEC"}, unix.AT_FDCWD},
		{file("missing"), "ENOENT", "", []string{"O_RDONLY"}, unix.AT_FDCWD},
		{"relative", "", "4755", []string{"O_RDWR", "O_CREAT", "O_EXCL"}, at},
		{"how", "", "0600", []string{"O_RDONLY", "O_CREAT", "O_APPEND"}, at},
		{file("creat"), "", "0111", []string{"O_WRONLY", "O_CREAT", "O_TRUNC"}, unix.AT_FDCWD},
	}
	for _, w := range want {
		rows := res.Where(func(r tooltest.Row) bool { return r.Str("path") == w.path })
		if len(rows) != 1 {
			t.Errorf("%s: %d rows, want 1", w.path, len(rows))
			continue
		}
		r := rows[0]
		flags := slices.DeleteFunc(r.List("flags"), func(f string) bool { return f == "O_LARGEFILE" })
		if r.Str("error") != w.error || r.Str("mode") != w.mode || !slices.Equal(flags, w.flags) {
			t.Errorf("%s: %v", w.path, r)
		}
		if failed := w.error != ""; failed != (r.Num("ret") < 0) || failed != (r.Num("fd") == -1) {
			t.Errorf("%s: ret %v, fd %v", w.path, r["ret"], r["fd"])
		}
		if w.path[0] != '/' && int(r.Num("dirfd")) != w.dirfd {
			t.Errorf("%s: dirfd %v, want %d", w.path, r["dirfd"], w.dirfd)
		}
		if int(r.Num("pid")) != os.Getpid() || r.Num("uid") != 0 {
			t.Errorf("%s: task: %v", w.path, r)
		}
	}
	// Other losses are skipped program runs, whose events are unknown.
	if reasons := res.Summary.Object("reasons"); reasons.Num("buffer_full")+reasons.Num("map_full") != 0 {
		t.Errorf("summary: %v", res.Summary)
	}
}

// TestLaterVariant has a first attach type that fails, and uses one that is not decoded at the start.
func TestLaterVariant(t *testing.T) {
	tooltest.AnyAttachType(t)
	broken := *Tool
	broken.Object = func(which ...tool.Variants) (*ebpf.CollectionSpec, error) {
		spec, err := loadBpf(which...)
		if err == nil {
			first := &spec.Programs[bpfProgOpenBtf].Instructions[0]
			*first = asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord).WithMetadata(first.Metadata) // R5 is not set
		}
		return spec, err
	}
	path := filepath.Join(t.TempDir(), "later")
	for _, args := range [][]string{{"--full-path"}, {"--callers"}} {
		res := tooltest.JSON(t, &broken, append(self(), append(args, "--path", path)...), func() {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Error(err)
			}
		})
		if hooks := res.Ready.List("hooks"); !slices.ContainsFunc(hooks, func(h string) bool {
			return h == "open: raw_tp/sys_exit" || h == "open: tp/raw_syscalls/sys_exit"
		}) {
			t.Errorf("%q: hooks %q", args, hooks)
		}
		if len(res.Events) != 1 || res.Events[0].Str("path") != path || len(res.Events[0].Symbols("user_stack")) == 0 && args[0] == "--callers" {
			t.Errorf("%q: rows %v", args, res.Events)
		}
	}
}

func TestCompat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "by-32-bit")
	prog := tooltest.I386(t, append([]byte(path), 0), func(data uint32) []byte {
		open := tooltest.Call386(5, data, unix.O_CREAT|unix.O_WRONLY, 0o600)
		missing := tooltest.Call386(295, 0xffffff9c, data+uint32(len(path)), 0)
		return slices.Concat(open, missing, tooltest.Exit386())
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() {
		if err := exec.Command(prog).Run(); err != nil {
			t.Error(err)
		}
	})
	if len(res.Events) != 2 {
		t.Fatalf("%d rows, want 2: %v", len(res.Events), res.Events)
	}
	if r := res.Events[0]; r.Str("path") != path || r.Num("fd") != 3 || r.Str("mode") != "0600" {
		t.Errorf("open: %v", r)
	}
	if r := res.Events[1]; r.Str("path") != "" || r.Str("error") != "ENOENT" || r.Num("dirfd") != unix.AT_FDCWD {
		t.Errorf("openat: %v", r)
	}
}

func TestUring(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "by-uring")
	ring := newUring(t)
	var ret int32
	res := tooltest.JSON(t, Tool, append(self(), "-F"), func() {
		ret = ring.openat(path, unix.O_CREAT|unix.O_RDWR, 0o600)
		ring.openat(filepath.Join(dir, "none", "x"), unix.O_RDONLY, 0)
	})
	needUringHook(t, res)
	rows := res.Where(below(dir))
	if len(rows) != 2 {
		t.Fatalf("%d rows, want 2: %v", len(rows), rows)
	}
	if r := rows[0]; r.Str("path") != path || r.Num("ret") != float64(ret) || r.Str("mode") != "0600" {
		t.Errorf("returned %d: %v", ret, r)
	}
	if r := rows[1]; r.Str("error") != "ENOENT" {
		t.Errorf("failed: %v", r)
	}
}

func TestFilters(t *testing.T) {
	tooltest.AnyAttachType(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		name string
		args []string
		want []string
	}{
		{"failed", []string{"-x"}, []string{"b.missing"}},
		{"flag", []string{"-f", "creat"}, []string{"a.made"}},
		{"access mode", []string{"-f", "O_RDONLY"}, []string{"b.missing"}},
		{"either", []string{"-f", "O_RDONLY", "-f", "O_CREAT"}, []string{"a.made", "b.missing"}},
		{"whole path", []string{"--path", filepath.Join(dir, "a.made")}, []string{"a.made"}},
		{"beginning", []string{"--path", dir + "/b*"}, []string{"b.missing"}},
		{"end", []string{"--path", "*.made"}, []string{"a.made"}},
		{"no other", []string{"--path", dir + "/a"}, nil},
		{"part of the name", []string{"-n", "snoop"}, []string{"a.made", "b.missing"}},
		{"no part of the name", []string{"-n", "snoopy"}, nil},
		{"beginning of the name", []string{"--comm", "opens*"}, []string{"a.made", "b.missing"}},
		{"whole name", []string{"--comm", "opens"}, nil},
		{"another user", []string{"-u", "65534"}, nil},
		{"user", []string{"-u", "root"}, []string{"a.made", "b.missing"}},
		{"expression", []string{"--filter", `ret < 0 and comm startsWith "open"`}, []string{"b.missing"}},
		{"flags in an expression", []string{"--filter", `"O_CREAT" in flags`}, []string{"a.made"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res := tooltest.JSON(t, Tool, append(self(), tt.args...), func() {
				closing(unix.Open(dir+"/a.made", unix.O_CREAT|unix.O_WRONLY, 0o600))
				closing(unix.Open(dir+"/b.missing", unix.O_RDONLY, 0))
			})
			var got []string
			for _, r := range res.Where(below(dir)) {
				got = append(got, filepath.Base(r.Str("path")))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestUntrustedBytes(t *testing.T) {
	tooltest.AnyAttachType(t)
	dir := t.TempDir()
	name := "\x1b[2J\xff\n\"\\é"
	load := func() { closing(unix.Open(dir+"/"+name, unix.O_RDONLY, 0)) }
	rows := tooltest.JSON(t, Tool, self(), load).Where(below(dir))
	if len(rows) != 1 || rows[0].Bytes(t, "path") != dir+"/"+name {
		t.Errorf("JSON does not keep the bytes: %q", rows)
	}
	text := tooltest.Text(t, Tool, self(), load)
	if want := dir + `/\x1b[2J\xff\n"\\é` + "\n"; !strings.Contains(text, want) {
		t.Errorf("text lacks %q: %q", want, text)
	}
}

func TestLongPath(t *testing.T) {
	long := "/" + strings.Repeat("./", (unix.PathMax-2)/2-1) + "x"
	res := tooltest.JSON(t, Tool, self(), func() { closing(unix.Open(long, unix.O_RDONLY, 0)) })
	rows := res.Where(below("/./"))
	if len(rows) != 1 || rows[0].Str("path") != long {
		t.Fatalf("%d rows with the path of %d bytes", len(rows), len(long))
	}
}

// TestNoPath opens an empty path, which is valid, and a path at an unmapped address.
func TestNoPath(t *testing.T) {
	res := tooltest.JSON(t, Tool, append(self(), "-x"), func() {
		closing(unix.Open("", unix.O_RDONLY, 0))
		unix.Syscall6(unix.SYS_OPENAT, 8, uintptr(unix.O_RDONLY), 0, 0, 0, 0)
	})
	empty := res.Where(func(r tooltest.Row) bool { return r.Has("path") && r.Str("path") == "" })
	if len(empty) != 1 || empty[0].Str("error") != "ENOENT" {
		t.Errorf("the empty path: %v", empty)
	}
	none := res.Where(func(r tooltest.Row) bool { return !r.Has("path") })
	if len(none) != 1 || none[0].Str("error") != "EFAULT" {
		t.Errorf("no path: %v", none)
	}
}

// TestNotAsked checks that returns from signal handlers, and system calls that exist on no
// architecture, cause no rows.
func TestNotAsked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asked")
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGUSR1)
	defer signal.Stop(signals)
	res := tooltest.JSON(t, Tool, self(), func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for range 20 {
			unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGUSR1)
			<-signals
		}
		for nr := -1; nr >= -16; nr-- {
			unix.Syscall6(uintptr(nr), 8, 0, 0, 0, 0, 0)
		}
		closing(unix.Open(path, unix.O_RDONLY, 0))
	})
	asked := res.Where(func(r tooltest.Row) bool { return r.Str("path") == path })
	none := res.Where(func(r tooltest.Row) bool { return !r.Has("path") })
	if len(asked) != 1 || len(none) != 0 {
		t.Errorf("rows of the path: %v, rows without a path: %v", asked, none)
	}
}

func TestTextAndCSV(t *testing.T) {
	tooltest.AnyAttachType(t)
	path := filepath.Join(t.TempDir(), "x,y")
	load := func() { closing(unix.Open(path, unix.O_RDONLY, 0)) }
	comm := strings.TrimSpace(read(t, "/proc/self/comm"))
	args := append(self(), "--path", path)

	text := tooltest.Text(t, Tool, args, load)
	pid := strconv.Itoa(os.Getpid())
	want := "PID     COMM              FD ERR PATH\n" +
		pad(pid, 7) + " " + pad(comm, 16) + "  -1   2 " + path + "\n"
	if got := sameThread(text, comm); got != want {
		t.Errorf("text:\n%swant:\n%s", got, want)
	}

	csv := tooltest.Text(t, Tool, append(args, "--output", "csv", "--columns", "pid,ret,error,path"), load)
	want = "pid,ret,error,path\n" + pid + ",-2,ENOENT,\"" + path + "\"\n"
	if csv != want {
		t.Errorf("CSV:\n%swant:\n%s", csv, want)
	}
}

// sameThread sets the name of each thread to that of the process, as both are set by the test
// runner.
func sameThread(text, comm string) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) > 1 {
		fields := strings.Fields(lines[1])
		lines[1] = strings.Replace(lines[1], pad(fields[1], 16), pad(comm, 16), 1)
	}
	return strings.Join(lines, "")
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-len(s)))
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// storm opens a file as fast as possible, with the output going to a file.
func storm(t testing.TB, opens int) (rows int, summary tooltest.Row, span time.Duration) {
	path := filepath.Join(t.TempDir(), "storm")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rows, summary = tooltest.File(t, Tool, append(self(), "--path", path), func() {
		begin := time.Now()
		for range opens {
			closing(unix.Open(path, unix.O_RDONLY, 0))
		}
		span = time.Since(begin)
	})
	return rows, summary, span
}

func TestStorm(t *testing.T) {
	opens := 300_000
	if testing.Short() {
		opens = 10_000
	}
	rows, summary, _ := storm(t, opens)
	tooltest.CheckTotal(t, summary, rows, opens)
}

// BenchmarkStorm measures 300,000 opens at full speed: opens per second, and the number of rows.
func BenchmarkStorm(b *testing.B) {
	const opens = 300_000
	var rows int
	var summary tooltest.Row
	var span time.Duration
	for b.Loop() {
		rows, summary, span = storm(b, opens)
	}
	b.ReportMetric(opens/span.Seconds(), "opens/s")
	b.ReportMetric(float64(rows), "rows")
	b.ReportMetric(summary.Num("lost"), "lost")
}

func creat(path string, mode uint32) (int, error) {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return -1, err
	}
	if sysCreat == 0 {
		return unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, mode)
	}
	fd, _, errno := unix.Syscall(sysCreat, uintptr(unsafe.Pointer(p)), uintptr(mode), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
