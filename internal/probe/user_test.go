package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/binary"
	"github.com/corescope/corescope/internal/tooltest/native"
)

// addUser adds a program in user space with these instructions, or one that counts its runs in
// map_full.
func (o object) addUser(name, section string, ins ...asm.Instruction) object {
	if len(ins) == 0 {
		ins = counting()
	}
	o.Programs[name] = &ebpf.ProgramSpec{
		Name: tag(), Type: ebpf.Kprobe, SectionName: section, License: "GPL", Instructions: ins,
	}
	return o
}

// loadUser loads an object with these files for the name "lib".
func loadUser(t *testing.T, o object, files binary.Files) *Objects {
	t.Helper()
	needRoot(t)
	kernel, err := NewKernel("")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := Load(o.CollectionSpec, Options{
		Kernel: kernel, Files: map[string]binary.Files{"lib": files},
		Notify: func(err error) { t.Logf("notice: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { objects.Close() })
	return objects
}

func runs(t *testing.T, o *Objects) uint64 {
	t.Helper()
	counts, err := o.Counts("lost").Read()
	if err != nil {
		t.Fatal(err)
	}
	return counts["map_full"]
}

// testBothLinks runs a test with one link for all sites, if the kernel supports it, and with a perf
// event for each site. The test calls single before Attach.
func testBothLinks(t *testing.T, test func(t *testing.T, single func(*Objects))) {
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single=%v", single), func(t *testing.T) {
			if !single && features.HaveBPFLinkUprobeMulti() != nil {
				t.Skip("this kernel has no uprobe_multi")
			}
			test(t, func(o *Objects) {
				for _, prog := range o.spec.Programs {
					if single {
						prog.AttachType = ebpf.AttachNone
					}
				}
			})
		})
	}
}

func TestUserFunctions(t *testing.T) {
	testBothLinks(t, func(t *testing.T, single func(*Objects)) {
		lib := native.Open(t, "corescope-a.so.1", []string{"one", "two", "three"})
		o := loadUser(t, newObject().addUser("x__uprobe__in", "uprobe/lib:one,two,none").addUser("x__uprobe__out", "uretprobe/lib:two"),
			binary.Files{Names: []string{"corescope-a.so*"}})
		single(o)
		if err := o.Attach(); err != nil {
			t.Fatal(err)
		}
		for _, fn := range []string{"one", "two", "three"} {
			lib.Call(fn, native.Call{})
		}
		if n := runs(t, o); n != 3 {
			t.Errorf("%d runs, want 3: the entries of one and two, and the return of two", n)
		}
		if got, want := o.returnsIn(Variant{Programs: []string{"x__uprobe__out"}}), "returns of 1 function by uprobes at 1 return instruction"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		hooks := strings.Join(o.AttachedHooks(), "\n")
		if !slices.Equal(o.Files("lib"), []string{lib.Path}) || !strings.HasSuffix(hooks, ": uprobe/lib in "+lib.Path) {
			t.Errorf("attached in %q: %s", o.Files("lib"), hooks)
		}
		if err := o.Detach(); err != nil {
			t.Fatal(err)
		}
		lib.Call("one", native.Call{})
		if n := runs(t, o); n != 3 {
			t.Errorf("%d runs after Detach", n)
		}
	})
}

// TestUserFollow maps a library after Attach, a second time by the same name, and a library without
// the function.
func TestUserFollow(t *testing.T) {
	testBothLinks(t, func(t *testing.T, single func(*Objects)) {
		o := loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), binary.Files{Names: []string{"corescope-f*.so"}})
		single(o)
		if err := o.Attach(); err != nil {
			t.Fatal(err)
		}
		native.Open(t, "corescope-f-none.so", []string{"other"})
		lib := native.Open(t, "corescope-f.so", []string{"one"})
		mapped := time.Now()
		lib.Map(t)
		for deadline := time.Now().Add(30 * time.Second); len(o.Files("lib")) == 0; {
			if time.Now().After(deadline) {
				t.Fatal("no program was attached in a library that was mapped after Attach")
			}
			time.Sleep(time.Millisecond)
		}
		t.Logf("attached %v after it was mapped", time.Since(mapped))
		lib.Call("one", native.Call{})
		if n := runs(t, o); n != 1 || !slices.Equal(o.Files("lib"), []string{lib.Path}) {
			t.Errorf("%d runs, attached in %q", n, o.Files("lib"))
		}
		if err := o.Detach(); err != nil {
			t.Fatal(err)
		}
		lib.Call("one", native.Call{})
		if n := runs(t, o); n != 1 {
			t.Errorf("%d runs after Detach", n)
		}
	})
}

// TestUserOneFile maps a file by two names: programs are attached only once.
func TestUserOneFile(t *testing.T) {
	lib := native.Open(t, "corescope-o1.so", []string{"one"})
	link := filepath.Join(filepath.Dir(lib.Path), "corescope-o2.so")
	if err := os.Link(lib.Path, link); err != nil {
		t.Fatal(err)
	}
	lib.Path = link
	lib.Map(t)
	o := loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), binary.Files{Names: []string{"corescope-o?.so"}})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if lib.Call("one", native.Call{}); runs(t, o) != 1 {
		t.Errorf("%d runs of one call", runs(t, o))
	}
}

// storeCookie stores the attach cookie as the number of runs.
func storeCookie() asm.Instructions {
	return asm.Instructions{
		asm.FnGetAttachCookie.Call(),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference("lost"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.StoreMem(asm.R0, 8, asm.R6, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}

// TestUserProbes attaches to USDT probes, and checks that their semaphore is set until Detach.
func TestUserProbes(t *testing.T) {
	testBothLinks(t, func(t *testing.T, single func(*Objects)) {
		lib := native.Open(t, "corescope-p.so", []string{"one", "two"},
			native.Probe{Function: "one", Provider: "p", Name: "go", Semaphore: true},
			native.Probe{Function: "two", Provider: "p", Name: "other", Semaphore: true},
			native.Probe{Function: "two", Provider: "p", Name: "go"})
		o := loadUser(t, newObject().addUser("x__usdt", "usdt/lib:p:go"), binary.Files{Names: []string{"corescope-p.so"}})
		single(o)
		if err := o.Attach(); err != nil {
			t.Fatal(err)
		}
		if lib.Semaphore(0) != 1 || lib.Semaphore(1) != 0 {
			t.Errorf("semaphores are %d and %d, want 1 and 0", lib.Semaphore(0), lib.Semaphore(1))
		}
		lib.Call("one", native.Call{})
		lib.Call("two", native.Call{})
		if n := runs(t, o); n != 2 {
			t.Errorf("%d runs of two probes, want 2", n)
		}
		if err := o.Detach(); err != nil {
			t.Fatal(err)
		}
		if lib.Semaphore(0) != 0 {
			t.Errorf("semaphore is %d after Detach, want 0", lib.Semaphore(0))
		}
	})
}

// TestCookies checks that the program gets a different cookie at each site, with the kernel's
// attach cookies and without.
func TestCookies(t *testing.T) {
	for _, kernel := range []bool{true, false} {
		testBothLinks(t, func(t *testing.T, single func(*Objects)) {
			needRoot(t)
			if kernel && !haveCookies() {
				t.Skip("this kernel has no cookies")
			}
			lib := native.Open(t, "corescope-c.so", []string{"one", "two"},
				native.Probe{Function: "one", Provider: "p", Name: "go", Args: "4@" + constant("5")},
				native.Probe{Function: "two", Provider: "p", Name: "go", Args: "4@" + constant("6")})
			spec := newObject().addUser("x__usdt", "usdt/lib:p:go", storeCookie()...)
			spec.Maps["usdt_specs"] = &ebpf.MapSpec{Name: tag(), Type: ebpf.Array, KeySize: 4, ValueSize: 392, MaxEntries: 4, Tags: []string{userSpace}}
			o := loadUser(t, spec, binary.Files{Names: []string{"corescope-c.so"}})
			o.user.cookies = func() bool { return kernel }
			single(o)
			maps, err := ebpf.NewMap(spec.Maps["usdt_specs"])
			if err != nil {
				t.Fatal(err)
			}
			o.Maps["usdt_specs"] = maps
			err = o.Attach()
			if !kernel && spec.Programs["x__usdt"].AttachType != ebpf.AttachNone {
				return // every kernel with uprobe_multi has cookies
			}
			if err != nil {
				t.Fatal(err)
			}
			for i, fn := range []string{"one", "two"} {
				if lib.Call(fn, native.Call{}); runs(t, o) != uint64(i) {
					t.Errorf("cookie of %s is %d, want %d", fn, runs(t, o), i)
				}
			}
		})
	}
}

func constant(n string) string {
	if runtime.GOARCH == "amd64" {
		return "$" + n
	}
	return n
}

func TestUserErrors(t *testing.T) {
	needRoot(t)
	lib := native.Write(t, filepath.Join(t.TempDir(), "corescope-e.so"), []string{"other"})
	o := loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), binary.Files{Paths: []string{lib.Path}})
	if err := o.Attach(); !errors.Is(err, ErrNoAttachPoint) || !strings.Contains(err.Error(), lib.Path+" has no attach point: function one not found") {
		t.Errorf("file without the function: %v, want ErrNoAttachPoint", err)
	}
	o = loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one", asm.LoadMem(asm.R0, asm.R5, 0, asm.DWord), asm.Return()),
		binary.Files{Names: []string{"no-such-library"}})
	if err := o.Attach(); !errors.Is(err, ErrUnsupported) {
		t.Errorf("program that does not load: %v, want ErrUnsupported", err)
	}
	odd := native.Open(t, "corescope-odd.so", []string{"one"}, native.Probe{Function: "one", Provider: "p", Name: "go", Args: "8f@%xmm0"})
	o = loadUser(t, newObject().addUser("x__usdt", "usdt/lib:p:go"), binary.Files{Paths: []string{odd.Path}})
	if err := o.Attach(); err == nil || !strings.Contains(err.Error(), "unsupported argument") {
		t.Errorf("probe with a floating-point argument: %v, want an error", err)
	}
}

// TestUserOverlay maps a file through two overlay mounts that share its lower layer, and through
// one where it has been copied up. Programs run once for each call in each of the three.
func TestUserOverlay(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/lower", 0o755); err != nil {
		t.Fatal(err)
	}
	native.Write(t, dir+"/lower/corescope-v.so", []string{"one"})
	var libs []*native.Library
	for _, name := range []string{"a", "b", "c"} {
		merged := mountOverlay(t, filepath.Join(dir, name), dir+"/lower")
		lib := &native.Library{Path: merged + "/corescope-v.so"}
		if name == "c" { // copy it up
			if err := os.Chmod(lib.Path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := lib.Load("one"); err != nil {
			t.Fatal(err)
		}
		libs = append(libs, lib)
	}
	o := loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), binary.Files{Names: []string{"corescope-v.so"}})
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	for i, lib := range libs {
		if lib.Call("one", native.Call{}); runs(t, o) != uint64(i+1) {
			t.Errorf("%d runs after %d calls, in files %q", runs(t, o), i+1, o.Files("lib"))
		}
	}
}

func mountOverlay(t *testing.T, dir, lower string) string {
	t.Helper()
	for _, d := range []string{dir, dir + "/upper", dir + "/work", dir + "/merged"} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if d != dir {
			continue
		}
		// The upper layer must not be on an overlay itself.
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Skipf("mount tmpfs: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	}
	options := "lowerdir=" + lower + ",upperdir=" + dir + "/upper,workdir=" + dir + "/work"
	if err := unix.Mount("overlay", dir+"/merged", "overlay", 0, options); err != nil {
		t.Skipf("mount overlay: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir+"/merged", unix.MNT_DETACH) })
	return dir + "/merged"
}

// TestUnobserved restricts the run to this process, which maps a file with a matching name but
// without the function, and later one with the function.
func TestUnobserved(t *testing.T) {
	files := binary.Files{Names: []string{"corescope-u*.so"}, PIDs: []uint32{uint32(os.Getpid())}}
	native.Open(t, "corescope-u1.so", []string{"other"})
	o := loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), files)
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if err := o.Unobserved(); !errors.Is(err, ErrUnobserved) || !strings.Contains(err.Error(), "corescope-u1.so") {
		t.Errorf("no file with the function is mapped: %v, want ErrUnobserved", err)
	}
	lib := native.Open(t, "corescope-u2.so", []string{"one"})
	for deadline := time.Now().Add(30 * time.Second); len(o.Files("lib")) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if err := o.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := o.Unobserved(); err != nil {
		t.Errorf("%s was mapped: %v", lib.Path, err)
	}
	files.Paths = []string{lib.Path}
	o = loadUser(t, newObject().addUser("x__uprobe", "uprobe/lib:one"), files)
	if err := o.Attach(); err != nil {
		t.Fatal(err)
	}
	if err := o.Unobserved(); err != nil {
		t.Errorf("%s is mapped and given as a path: %v", lib.Path, err)
	}
}
