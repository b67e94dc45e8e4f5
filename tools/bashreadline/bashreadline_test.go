package bashreadline

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// libraryEnv makes the test binary a process that reads lines with the library of this path.
const libraryEnv = "CORESCOPE_LIBREADLINE"

func TestMain(m *testing.M) {
	if path := os.Getenv(libraryEnv); path != "" {
		os.Exit(readByLibrary(path))
	}
	os.Exit(m.Run())
}

func readByLibrary(path string) int {
	lib := &native.Library{Path: path}
	if err := lib.Load("readline"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	line := native.Text("by " + filepath.Base(os.Args[0]))
	lib.Call("readline", native.Call{Ret: native.Pointer(line)})
	return 0
}

func libreadline(t testing.TB) *native.Library {
	return native.Open(t, "libreadline.so.8", []string{"readline"})
}

func self() []string { return []string{"--any", "--pid", fmt.Sprint(os.Getpid())} }

// lines returns the lines that readline returns, with their rows.
func lines() []string {
	return []string{"ls -l", "", "echo 'a\n b'\t", "bad \xff\x1b[31m", strings.Repeat("x", 8191), "último λ"}
}

func TestLines(t *testing.T) {
	lib := libreadline(t)
	res := tooltest.JSON(t, Tool, self(), func() {
		for _, line := range lines() {
			text := native.Text(line)
			lib.Call("readline", native.Call{Ret: native.Pointer(text)})
		}
		lib.Call("readline", native.Call{}) // end of input
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, r.Bytes(t, "command"))
		if r["truncated"] != false {
			t.Errorf("truncated: %v", r)
		}
	}
	if !slices.Equal(got, lines()) {
		t.Errorf("lines %q, want %q", got, lines())
	}
}

func TestTruncated(t *testing.T) {
	lib := libreadline(t)
	res := tooltest.JSON(t, Tool, self(), func() {
		text := native.Text(strings.Repeat("0123456789", 900))
		lib.Call("readline", native.Call{Ret: native.Pointer(text)})
	})
	if len(res.Events) != 1 || len(res.Events[0].Str("command")) != 8191 || res.Events[0]["truncated"] != true {
		t.Errorf("rows %v", res.Events)
	}
}

func TestText(t *testing.T) {
	lib := libreadline(t)
	out := tooltest.Text(t, Tool, self(), func() {
		text := native.Text(lines()[3])
		lib.Call("readline", native.Call{Ret: native.Pointer(text)})
	})
	head, row, _ := strings.Cut(out, "\n")
	if strings.Join(strings.Fields(head), " ") != "TIME PID COMMAND" || !strings.HasSuffix(row, fmt.Sprintf(` %-7d bad \xff\x1b[31m`+"\n", os.Getpid())) {
		t.Errorf("text is %q", out)
	}
}

// TestPrograms reads lines with one library from programs of several names.
func TestPrograms(t *testing.T) {
	lib := libreadline(t)
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	names := []string{"bash", "other", "rbash", "bas", "bash-5.3", "rb"}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), exe, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func() {
		for _, name := range names {
			cmd := exec.Command(filepath.Join(dir, name))
			cmd.Env = append(os.Environ(), libraryEnv+"="+lib.Path)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s", name, err, out)
			}
		}
	}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"by bash", "by rbash", "by bash-5.3"}},
		{[]string{"-s", lib.Path}, []string{"by bash", "by rbash", "by bash-5.3"}},
		{[]string{"-s"}, []string{"by bash", "by rbash", "by bash-5.3"}},
		{[]string{"--any"}, []string{"by bash", "by other", "by rbash", "by bas", "by bash-5.3", "by rb"}},
	} {
		res := tooltest.JSON(t, Tool, tt.args, run)
		var got []string
		for _, r := range res.Events {
			if strings.HasPrefix(r.Str("command"), "by ") {
				got = append(got, r.Str("command"))
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q: lines %q, want %q", tt.args, got, tt.want)
		}
	}
}

// terminal is a bash with a pseudo-terminal that the test types into.
type terminal struct {
	t      *testing.T
	master *os.File
	pid    int
	seen   []byte
}

func startBash(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	master, slave := tooltest.PTY(t)
	defer slave.Close()
	cmd.Env = []string{"PS1=first$ ", "PS2=more> ", "TERM=dumb", "HISTFILE=", "LC_ALL=C.UTF-8", "PATH=" + os.Getenv("PATH")}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	term := &terminal{t: t, master: master, pid: cmd.Process.Pid}
	term.await("first$ ")
	return term
}

// await reads the output of bash until it contains the text.
func (b *terminal) await(text string) {
	buf := make([]byte, 4096)
	for !bytes.Contains(b.seen, []byte(text)) {
		n, err := b.master.Read(buf)
		if err != nil && err != io.EOF {
			b.t.Errorf("wait for %q: %v, have %q", text, err, b.seen)
			return
		}
		b.seen = append(b.seen, buf[:n]...)
	}
	b.seen = nil
}

func (b *terminal) enter(line, prompt string) {
	if _, err := b.master.WriteString(line + "\r"); err != nil {
		b.t.Error(err)
	}
	b.await("\n" + prompt)
}

// TestBash types into a real bash.
func TestBash(t *testing.T) {
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skipf("bash is not installed: %v", err)
	}
	bash := startBash(t, exec.Command(path, "--norc", "--noprofile", "-i"))
	res := tooltest.JSON(t, Tool, nil, func() {
		// The call that reads this line is active before the tool is attached: a probe at the
		// return instruction observes it, a uretprobe does not.
		bash.enter("true", "first$ ")
		bash.enter("echo one two", "first$ ")
		bash.enter("for i in 1 2; do", "more> ")
		bash.enter("  echo $i; done", "first$ ")
		bash.enter("", "first$ ")
	})
	var got []string
	for _, r := range res.Events {
		if r.Num("pid") == float64(bash.pid) {
			got = append(got, r.Str("command"))
		}
	}
	if len(got) > 0 && got[0] == "true" {
		got = got[1:]
	}
	want := []string{"echo one two", "for i in 1 2; do", "  echo $i; done", ""}
	if !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}
