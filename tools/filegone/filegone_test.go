package filegone

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/value"
)

func self() []string { return []string{"--pid", strconv.Itoa(os.Getpid())} }

func makeFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func must(t *testing.T) func(error) {
	return func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
}

// brief returns the action, paths and kind of a row.
func brief(r tooltest.Row) string {
	dir, _ := r["directory"].(bool)
	return strings.Join([]string{r.Str("action"), r.Str("syscall"), r.Str("path"), r.Str("new_path"), strconv.FormatBool(dir)}, " ")
}

func TestEveryCall(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, "a", "b", "c", "d", "e")
	must(t)(os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	at, err := unix.Open(dir, unix.O_RDONLY, 0)
	must(t)(err)
	defer unix.Close(at)
	file := func(name string) string { return filepath.Join(dir, name) }
	want := []string{
		"DELETE unlinkat " + file("a") + "  false",
		"DELETE unlinkat b  false",
		"DELETE unlinkat sub  true",
		"RENAME renameat c " + file("c2") + " false",
		"RENAME renameat2 c2 c3 false",
		"EXCHANGE renameat2 c3 d false",
	}
	res := tooltest.JSON(t, Tool, self(), func() {
		ok := must(t)
		ok(unix.Unlinkat(unix.AT_FDCWD, file("a"), 0))
		ok(unix.Unlinkat(at, "b", 0))
		ok(unix.Unlinkat(at, "sub", unix.AT_REMOVEDIR))
		ok(unix.Renameat(at, "c", unix.AT_FDCWD, file("c2")))
		ok(unix.Renameat2(at, "c2", at, "c3", unix.RENAME_NOREPLACE))
		ok(unix.Renameat2(at, "c3", at, "d", unix.RENAME_EXCHANGE))
		if unix.Unlinkat(at, "missing", 0) == nil || unix.Renameat(at, "missing", at, "e") == nil {
			t.Error("calls on a missing file succeed")
		}
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, brief(r))
	}
	if !slices.Equal(got, want) {
		t.Errorf("rows\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOldCalls makes the calls that arm64 does not have.
func TestOldCalls(t *testing.T) {
	names := value.NewSyscalls()
	if _, ok := names.Number(value.ABINative, "unlink"); !ok {
		t.Skip("this architecture has no unlink(2)")
	}
	dir := t.TempDir()
	makeFiles(t, dir, "a", "b")
	must(t)(os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	call := func(name string, paths ...string) {
		nr, _ := names.Number(value.ABINative, name)
		var args [2]uintptr
		for i, path := range paths {
			b, err := unix.BytePtrFromString(filepath.Join(dir, path))
			must(t)(err)
			args[i] = uintptr(unsafe.Pointer(b))
		}
		if _, _, errno := unix.Syscall(uintptr(nr), args[0], args[1], 0); errno != 0 {
			t.Errorf("%s: %v", name, errno)
		}
	}
	res := tooltest.JSON(t, Tool, self(), func() {
		call("unlink", "a")
		call("rmdir", "sub")
		call("rename", "b", "c")
	})
	var got []string
	for _, r := range res.Events {
		got = append(got, strings.ReplaceAll(brief(r), dir, ""))
	}
	if want := []string{"DELETE unlink /a  false", "DELETE rmdir /sub  true", "RENAME rename /b /c false"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestCompat(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, "a", "b")
	a, b := filepath.Join(dir, "a")+"\x00", filepath.Join(dir, "b")+"\x00"
	prog := tooltest.I386(t, []byte(a+b), func(data uint32) []byte {
		return slices.Concat(
			tooltest.Call386(10, data),                      // unlink
			tooltest.Call386(38, data+uint32(len(a)), data), // rename
			tooltest.Call386(301, 0xffffff9c, data, 0),      // unlinkat
			tooltest.Call386(10, data), tooltest.Exit386())  // fails
	})
	res := tooltest.JSON(t, Tool, []string{"--comm", "prog386"}, func() { must(t)(exec.Command(prog).Run()) })
	var got []string
	for _, r := range res.Events {
		got = append(got, strings.ReplaceAll(brief(r), dir, ""))
	}
	if want := []string{"DELETE unlink /a  false", "RENAME rename /b /a false", "DELETE unlinkat /a  false"}; !slices.Equal(got, want) {
		t.Errorf("rows %q, want %q", got, want)
	}
}

func TestFullPathAndText(t *testing.T) {
	tooltest.AnyAttachType(t)
	dir := t.TempDir()
	makeFiles(t, dir, "a")
	at, err := unix.Open(dir, unix.O_RDONLY, 0)
	must(t)(err)
	defer unix.Close(at)
	out := tooltest.Text(t, Tool, append(self(), "-F"), func() {
		must(t)(unix.Renameat(at, "a", at, "b"))
		must(t)(unix.Unlinkat(at, "b", 0))
	})
	lines := strings.Split(out, "\n")
	if got := strings.Join(strings.Fields(lines[0]), " "); got != "TIME PID COMM ACTION FILE" {
		t.Errorf("header %q", got)
	}
	if len(lines) != 4 || !strings.HasSuffix(lines[1], " RENAME "+dir+"/a > "+dir+"/b") || !strings.HasSuffix(lines[2], " DELETE "+dir+"/b") {
		t.Errorf("%q", lines)
	}
}
