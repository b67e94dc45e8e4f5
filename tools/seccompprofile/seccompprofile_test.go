package seccompprofile

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/tool"
	"github.com/corescope/corescope/internal/tooltest"
	"github.com/corescope/corescope/internal/value"
)

// read reads a profile. It fails the test for members that the format does not have.
func read(t *testing.T, path string) (d document) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if d.DefaultAction != "SCMP_ACT_ERRNO" || len(d.Syscalls) == 0 {
		t.Fatalf("profile is %s", text)
	}
	for _, r := range d.Syscalls {
		if r.Action != "SCMP_ACT_ALLOW" {
			t.Fatalf("profile is %s", text)
		}
	}
	return d
}

// native is the architecture of this program.
func native() string { return architectures(runtime.GOARCH)[value.ABINative] }

// script makes system calls with known names, of which a shell makes few itself.
const script = "umask 022; cd /; mkdir $0/d; rmdir $0/d; ln -s x $0/$$; kill -0 $$"

// TestStrace compares the profile of a command with the calls that strace observes.
func TestStrace(t *testing.T) {
	tooltest.Root(t)
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skipf("strace is not installed: %v", err)
	}
	dir := t.TempDir()
	file, log := filepath.Join(dir, "profile.json"), filepath.Join(dir, "log")
	command := "sh -c '" + script + "' "
	tooltest.JSONUnskipped(t, Tool, []string{"--exec", "exec " + command + t.TempDir(), "--runtime=false", file}, nil)
	cmd := exec.Command("sh", "-c", strace+" -f -qq -o "+log+" -- "+command+t.TempDir())
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("strace does not work here: %v: %s", err, text)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^\d+ +([a-z0-9_]+)\(`).FindAllStringSubmatch(string(text), -1) {
		want = append(want, m[1])
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if d := read(t, file); !slices.Equal(d.Syscalls[0].Names, want) || len(d.Syscalls) != 1 {
		got := d.Syscalls[0].Names
		t.Errorf("profile allows %q\nstrace observes %q", got, want)
	}
	for _, name := range []string{"umask", "chdir", "kill", "exit_group"} {
		if !slices.Contains(want, name) {
			t.Errorf("strace does not observe %s", name)
		}
	}
}

// TestRows compares the profile with the rows, and both with calls that the command makes.
func TestRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.json")
	res := tooltest.JSONUnskipped(t, Tool, []string{"--exec", "sh -c '" + script + "' " + t.TempDir(), file, "--add", "vhangup"}, nil)
	want := []string{"execve", "vhangup"}
	for _, r := range res.Rows {
		if r.Str("abi") != "native" || r.Num("count") < 1 {
			t.Errorf("row %v", r)
		}
		want = append(want, r.Str("syscall"))
	}
	slices.Sort(want)
	want = slices.Compact(want)
	d := read(t, file)
	if !slices.Equal(d.Syscalls[0].Names, want) || !slices.Equal(d.Architectures, []string{native()}) || d.Syscalls[0].Comment != "" {
		t.Errorf("profile is %v, want %q", d, want)
	}
	for _, name := range []string{"umask", "chdir", "kill", "exit_group"} {
		if !slices.Contains(want, name) {
			t.Errorf("no row of %s: %q", name, want)
		}
	}
	if len(d.Syscalls) != 2 {
		t.Fatalf("profile has no calls of the runtime: %v", d)
	}
	for _, name := range runtimeCalls() {
		first, second := slices.Contains(want, name), slices.Contains(d.Syscalls[1].Names, name)
		if _, exists := value.NewSyscalls().Number(value.ABINative, name); first && second || exists && !first && !second {
			t.Errorf("call %s of the runtime: observed %v, in the second rule %v", name, first, second)
		}
	}
	if slices.Contains(want, "vmsplice") {
		t.Error("a call is listed that is not made")
	}
}

// TestCompat runs a 32-bit program that makes exactly these calls, and one without a name.
func TestCompat(t *testing.T) {
	const getpid, umask, getppid, unnamed = 20, 60, 64, 222
	var code []byte
	prog := tooltest.I386(t, nil, func(uint32) []byte {
		code = nil
		for _, nr := range []uint32{getpid, umask, getppid, getppid} {
			code = append(code, tooltest.Call386(nr)...)
		}
		return append(code, tooltest.Exit386()...)
	})
	file := filepath.Join(t.TempDir(), "profile.json")
	res := tooltest.JSONUnskipped(t, Tool, []string{"--exec", prog, "--write", file}, nil)
	d := read(t, file)
	want := []string{"execve", "exit", "getpid", "getppid", "umask"}
	if got := d.Syscalls[0].Names; !slices.Equal(got, want) || !slices.Equal(d.Architectures, []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86"}) {
		t.Errorf("profile is %v, want %q", d, want)
	}
	for _, r := range res.Rows {
		if r.Str("abi") != "compat" || r.Num("count") != map[bool]float64{true: 2, false: 1}[r.Str("syscall") == "getppid"] {
			t.Errorf("row %v", r)
		}
	}
	prog = tooltest.I386(t, nil, func(uint32) []byte { return append(tooltest.Call386(unnamed), tooltest.Exit386()...) })
	var errOut strings.Builder
	if code := tool.Run(t.Context(), Tool, []string{"--exec", prog, file}, io.Discard, &errOut); code == tool.ExitOK || !strings.Contains(errOut.String(), "without a name were made: [222]") {
		t.Errorf("exit code %d: %s", code, &errOut)
	}
	if d := read(t, file); !strings.HasPrefix(d.Syscalls[0].Comment, "incomplete: ") {
		t.Errorf("profile is %v", d)
	}
}

// TestIncomplete checks that losses are noted in the profile and reported.
func TestIncomplete(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.json")
	write := func(p *profile, lost uint64) error {
		if err := p.open(file); err != nil {
			t.Fatal(err)
		}
		return p.write(lost)
	}
	if err := write(newProfile(), 0); err == nil {
		t.Error("a profile without calls is written")
	}
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a profile without calls leaves a file: %v", err)
	}
	p := newProfile()
	p.observe(value.ABINative, "read")
	if err := write(p, 3); !errors.Is(err, errIncomplete) || !strings.Contains(err.Error(), "3 events were lost") {
		t.Errorf("error is %v", err)
	}
	if d := read(t, file); d.Syscalls[0].Comment != "incomplete: 3 events were lost" {
		t.Errorf("profile is %v", d)
	}
	if err := write(newProfile(), 0); err == nil || read(t, file).Syscalls[0].Names[0] != "read" {
		t.Errorf("a profile without calls replaces another one: %v", err)
	}
	if err := write(p, 0); err != nil || read(t, file).Syscalls[0].Comment != "" {
		t.Errorf("error is %v", err)
	}
}

func TestUsage(t *testing.T) {
	tooltest.Fails(t, Tool, []string{"--add", "nosuchcall"}, tool.ExitUsage, `unknown system call "nosuchcall"`)
	tooltest.Fails(t, Tool, []string{"--exec", "/no/such/program"}, tool.ExitUsage, `command "/no/such/program": `)
	tooltest.Fails(t, Tool, []string{"/no/such/dir/profile.json"}, tool.ExitFailure, "no such file")
}
