package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// mapperEnv has the path of the library that this program maps when it is the child of a test.
const mapperEnv = "CORESCOPE_TEST_MAPPER"

// TestMapper is the child: it maps the library, reports that, and runs until its standard input ends.
func TestMapper(t *testing.T) {
	path := os.Getenv(mapperEnv)
	if path == "" {
		return
	}
	if err := (&native.Library{Path: path}).Load("one"); err != nil {
		t.Fatal(err)
	}
	fmt.Println("mapped")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startMapper starts a process that has mapped the library. end ends it, and returns when it does not
// exist any more.
func startMapper(t *testing.T, path string) (pid uint32, end func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMapper$")
	cmd.Env = append(os.Environ(), mapperEnv+"="+path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // an error after an earlier call, or because of the signal
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "mapped\n" {
		t.Fatalf("child wrote %q, %v", line, err)
	}
	return uint32(cmd.Process.Pid), end
}

// TestExited attaches for processes that exit when their files are open, or before: that is the reported
// cause, not a missing attach point or mapping.
func TestExited(t *testing.T) {
	testBothLinks(t, func(t *testing.T, single func(*Objects)) {
		lib := native.Write(t, t.TempDir()+"/corescope-exited.so", []string{"one"})
		load := func(pids ...uint32) *Objects {
			files := binary.Files{Names: []string{"corescope-exited.so"}, PIDs: pids, Alone: true}
			o := loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), files)
			single(o)
			if err := o.user.find(); err != nil {
				t.Fatal(err)
			}
			return o
		}
		pid, end := startMapper(t, lib.Path)
		mapped := load(pid)
		end()
		for name, o := range map[string]*Objects{"after the files were opened": mapped, "before": load(pid)} {
			err := o.Attach()
			if !errors.Is(err, ErrExited) || errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), fmt.Sprintf("process %d exited", pid)) {
				t.Errorf("process exited %s: %v, want ErrExited", name, err)
			}
		}
		lost, end := startMapper(t, lib.Path)
		other, _ := startMapper(t, lib.Path)
		o := load(lost, other)
		end()
		if err := o.Attach(); err != nil {
			t.Errorf("one of two processes exited: %v", err)
		}
		if err := o.Unobserved(); err != nil {
			t.Errorf("one of two processes exited: %v", err)
		}
	})
}

// TestExitedObserved attaches for all processes that have mapped a file, and filters events. Until the
// selected process exits, it is observed, even if that is before all programs are attached.
func TestExitedObserved(t *testing.T) {
	lib := native.Write(t, t.TempDir()+"/corescope-exited.so", []string{"one"})
	pid, end := startMapper(t, lib.Path)
	files := binary.Files{Names: []string{"corescope-exited.so"}, PIDs: []uint32{pid}}
	o := loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), files)
	if err := o.user.find(); err != nil {
		t.Fatal(err)
	}
	end()
	if err := errors.Join(o.Attach(), o.Detach()); err != nil {
		t.Fatal(err)
	}
	if err := o.Unobserved(); err != nil {
		t.Errorf("programs were attached in %s: %v", lib.Path, err)
	}
}

// TestExitedUnattached reads the mapping of a process that has exited meanwhile: the reason why the hook is
// not attached says that, and not that no process mapped such a file.
func TestExitedUnattached(t *testing.T) {
	lib := native.Write(t, t.TempDir()+"/corescope-exited.so", []string{"one"})
	pid, end := startMapper(t, lib.Path)
	o := loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), binary.Files{Names: []string{"corescope-exited.so"}})
	mapped, err := binary.Executable(pid)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if got, want := o.Unattached()["x"], "no process mapped corescope-exited.so"; got != want {
		t.Errorf("before: %q, want %q", got, want)
	}
	for i := range mapped {
		o.user.open(o.user.names["lib"], &mapped[i])
	}
	if got, want := o.Unattached()["x"], "processes mapped "+lib.Path+", but ended"; !strings.HasPrefix(got, want) {
		t.Errorf("after the process exited: %q, want prefix %q", got, want)
	}
}

// TestObservedInAnyOrder reports the mappings of a program and its library in both orders: the records
// of several CPUs are not read in the order of their times. A library that the program before had mapped
// does not count.
func TestObservedInAnyOrder(t *testing.T) {
	path := native.Write(t, t.TempDir()+"/corescope-order.so", []string{"one"}).Path
	pid, _ := startMapper(t, path)
	all, err := binary.Executable(pid)
	if err != nil {
		t.Fatal(err)
	}
	var program, library binary.Mapped
	for _, m := range all {
		if name, err := m.Program(); err == nil && m.Path == name {
			program = m
		} else if m.Path == path {
			library = m
		}
	}
	f, err := library.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, test := range []struct {
		program, library uint64 // times
		libraryFirst     bool
		want             bool
	}{{1, 2, false, true}, {1, 2, true, true}, {2, 1, true, false}} {
		o := newObserved(&binary.Files{PIDs: []uint32{pid}})
		o.attached[f.ID] = true
		program.Time, library.Time = test.program, test.library
		if test.libraryFirst {
			o.mapped(&library)
			o.mapped(&program)
		} else {
			o.mapped(&program)
			o.mapped(&library)
		}
		if o.isObserved[pid] != test.want {
			t.Errorf("%+v: observed is %v", test, o.isObserved[pid])
		}
	}
}
