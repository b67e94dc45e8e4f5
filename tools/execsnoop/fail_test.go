package execsnoop

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tooltest"
)

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFailures checks that -x shows each failed call with all its arguments.
func TestFailures(t *testing.T) {
	tooltest.OnHooks(t, "fail")
	missing, target := filepath.Join(t.TempDir(), "missing"), program(t, "true")
	fails := []struct {
		file, error string
		ret         float64
		args        []string
	}{
		{missing, "ENOENT", -2, []string{"name", "a b", "", "\x1b\xff"}},
		{write(t, "plain", "", 0o644), "EACCES", -13, []string{"plain"}},
		{write(t, "junk", "junk", 0o755), "ENOEXEC", -8, append([]string{"junk"}, long(100, 4096)...)},
		{target, "E2BIG", -7, append([]string{"true"}, long(1, 200<<10)...)},
	}
	load := func() {
		for _, f := range fails {
			if err := (&exec.Cmd{Path: f.file, Args: f.args}).Run(); err == nil {
				t.Errorf("%s was executed", f.file)
			}
		}
		run(t, exec.Command(target))
	}
	for _, flags := range tooltest.ArgVariants([]string{"--perf-buffer"}, []string{"--hook", "fail=raw"}) {
		res := tooltest.JSON(t, Tool, children(append(flags, "-x")...), load)
		if len(res.Events) != len(fails)+1 || dropped(res.Summary) != 0 {
			t.Fatalf("%d rows of %d, %v", len(res.Events), len(fails)+1, res.Summary)
		}
		for i, f := range fails {
			r := res.Events[i]
			if r.Str("error") != f.error || r.Num("ret") != f.ret || r.Str("file") != f.file || r["args_truncated"] != false {
				t.Errorf("%s: ret %v, error %v, file %v, args_truncated %v", f.error, r["ret"], r["error"], r["file"], r["args_truncated"])
			}
			if got := argsOf(t, r); !slices.Equal(got, f.args) {
				t.Errorf("%s: %d args: %.200q", f.error, len(got), got)
			}
			if exe, err := os.Executable(); err != nil || r.Str("exe") != exe {
				t.Errorf("%s: exe %q, want the caller's: %s, %v", f.error, r["exe"], exe, err)
			}
		}
	}
	if res := tooltest.JSON(t, Tool, children(), load); len(res.Events) != 1 || res.Events[0].Num("ret") != 0 {
		t.Errorf("without -x: %v", res.Events)
	}
}

// TestTooManyArguments checks that arguments of a failed call beyond the limit are marked as
// missing.
func TestTooManyArguments(t *testing.T) {
	tooltest.OnHooks(t, "fail")
	args := append([]string{"many"}, strings.Split(strings.Repeat("x", 5000), "")...)
	res := tooltest.JSON(t, Tool, children("-x"), func() { (&exec.Cmd{Path: "/missing", Args: args}).Run() })
	if len(res.Events) != 1 {
		t.Fatalf("%d rows", len(res.Events))
	}
	r := res.Events[0]
	if got := argsOf(t, r); len(got) < 200 || !slices.Equal(got, args[:len(got)]) || r["args_truncated"] != true {
		t.Errorf("%d args, args_truncated %v", len(got), r["args_truncated"])
	}
}

// TestCold checks that arguments end before memory that is not resident. Kernels before 6.9 copy
// all arguments before they look up the file, so it is resident.
func TestCold(t *testing.T) {
	tooltest.OnHooks(t, "fail")
	res := tooltest.JSON(t, Tool, children("-x"), func() { by(t, "cold", "/missing", "", "behind").Run() })
	rows := res.Where(calls("/missing"))
	if len(rows) != 1 {
		t.Fatalf("%d rows: %v", len(rows), res.Events)
	}
	got, cut := argsOf(t, rows[0]), rows[0]["args_truncated"]
	if !(slices.Equal(got, []string{"/missing"}) && cut == true) &&
		!(slices.Equal(got, []string{"/missing", "cold", "behind"}) && cut == false) {
		t.Errorf("args %q, args_truncated %v", got, cut)
	}
}

// TestFailedExecveat checks that the file is named as for a successful call.
func TestFailedExecveat(t *testing.T) {
	tooltest.OnHooks(t, "fail")
	dir := t.TempDir()
	plain := write(t, "plain", "", 0o644)
	res := tooltest.JSON(t, Tool, children("-x"), func() {
		by(t, "execveat", filepath.Join(dir, "missing"), "x").Run()
		by(t, "fexecve", plain, "x").Run()
	})
	rows := res.Where(func(r tooltest.Row) bool { return r.Num("ret") < 0 })
	want := [][2]string{{"/dev/fd/*/missing", "ENOENT"}, {"/dev/fd/*", "EACCES"}}
	if len(rows) != len(want) {
		t.Fatalf("%d rows: %v", len(rows), rows)
	}
	for i, r := range rows {
		if ok, _ := filepath.Match(want[i][0], r.Str("file")); !ok || r.Str("error") != want[i][1] {
			t.Errorf("row is not %v: %v", want[i], r)
		}
	}
}

// Test32Bit executes a 32-bit program, which fails to execute another one.
func Test32Bit(t *testing.T) {
	strs := []string{"/missing386", "name", "a b", ""}
	data := strings.Join(strs, "\x00") + "\x00"
	prog := tooltest.I386(t, []byte(data), func(data uint32) []byte {
		code := []byte{0x6a, 0} // push 0, the terminator of argv
		end := data + uint32(len(strings.Join(strs, "\x00")))
		for _, s := range slices.Backward(strs[1:]) {
			end -= uint32(len(s))
			code = binary.LittleEndian.AppendUint32(append(code, 0x68), end) // push
			end--
		}
		code = binary.LittleEndian.AppendUint32(append(code, 0xbb), data) // mov ebx, the file
		code = append(code, 0x89, 0xe1, 0x31, 0xd2)                       // mov ecx, esp; xor edx, edx
		code = append(code, 0xb8, 11, 0, 0, 0, 0xcd, 0x80)                // execve
		return append(code, tooltest.Exit386()...)
	})
	cmd := &exec.Cmd{Path: prog, Args: append([]string{"32"}, long(40, 4096)...)}
	res := tooltest.JSON(t, Tool, children("-x"), func() { run(t, cmd) })
	if len(res.Events) != 2 {
		t.Fatalf("%d rows: %v", len(res.Events), res.Events)
	}
	if r := res.Events[0]; !slices.Equal(argsOf(t, r), cmd.Args) || r.Str("exe") != prog || r.Num("ret") != 0 {
		t.Errorf("row of the program: %.300v", r)
	}
	r := res.Events[1]
	if r.Str("file") != strs[0] || r.Str("error") != "ENOENT" || r.Str("comm") != "prog386" || r["args_truncated"] != false {
		t.Errorf("row of the failure: %v", r)
	}
	if got := argsOf(t, r); !slices.Equal(got, strs[1:]) {
		t.Errorf("args of the failure: %q", got)
	}
}
