package binary

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest/native"
)

func open(t *testing.T, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFunctions(t *testing.T) {
	lib := native.Write(t, filepath.Join(t.TempDir(), "lib.so"), []string{"one", "two"})
	f := open(t, lib.Path)
	got, err := f.Functions()
	if err != nil || len(got) != 2 {
		t.Fatalf("functions %v, %v", got, err)
	}
	b, err := os.ReadFile(lib.Path)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"one", "two"} {
		fn := got[i]
		// Offset is the first byte of the code: it is not 0, and the padding before it is.
		if fn.Name != name || fn.Size == 0 || b[fn.Offset] == 0 || fn.Offset > 0 && b[fn.Offset-1] != 0 {
			t.Errorf("function %+v, want %s with the offset of its first instruction", fn, name)
		}
	}
}

func TestExports(t *testing.T) {
	f := open(t, native.Write(t, filepath.Join(t.TempDir(), "lib.so"), []string{"one_two", "three"}).Path)
	for name, want := range map[string]bool{"one_two": true, "three": true, "one": false, "two": false, "": false} {
		if got, err := f.Exports("none", name); err != nil || got != want {
			t.Errorf("Exports(none, %q) = %v, %v, want %v", name, got, err, want)
		}
	}
}

func TestInvalidFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "text")
	if err := os.WriteFile(path, []byte("\x7fELF without a valid header"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, path).Functions(); err == nil {
		t.Errorf("functions of an invalid ELF file: %v, want an error", got)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "fifo"), "/dev/null", dir} {
		if _, err := Open(path); !errors.Is(err, ErrIrregular) {
			t.Errorf("open %s: %v, want %v", path, err, ErrIrregular)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open a missing file: %v, want %v", err, os.ErrNotExist)
	}
}

func TestForeign(t *testing.T) {
	lib := native.Write(t, filepath.Join(t.TempDir(), "lib.so"), []string{"one"})
	b, err := os.ReadFile(lib.Path)
	if err != nil {
		t.Fatal(err)
	}
	b[18], b[19] = 0xf3, 0 // RISC-V
	if err := os.WriteFile(lib.Path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, lib.Path).Functions(); !errors.Is(err, ErrForeign) {
		t.Errorf("functions of a RISC-V library: %v, want %v", err, ErrForeign)
	}
}

// FuzzFunctions reads files with one changed byte.
func FuzzFunctions(f *testing.F) {
	lib := native.Write(f, filepath.Join(f.TempDir(), "lib.so"), []string{"one"})
	b, err := os.ReadFile(lib.Path)
	if err != nil {
		f.Fatal(err)
	}
	for at := range 64 {
		f.Add(at, byte(0xff))
	}
	f.Fuzz(func(t *testing.T, at int, val byte) {
		broken := append([]byte(nil), b...)
		broken[uint(at)%uint(len(b))] = val
		path := filepath.Join(t.TempDir(), "lib.so")
		if err := os.WriteFile(path, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = open(t, path).Functions()
	})
}

// TestOverlay compares IDs of files on two overlays with the same lower layer: a file of the lower
// layer has the same ID in both, as for uprobes, and a file copied to an upper layer has another.
func TestOverlay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount")
	}
	dir := t.TempDir()
	native.Write(t, mkdir(t, dir, "lower")+"/lib.so", []string{"one"})
	native.Write(t, dir+"/lower/changed.so", []string{"one"})
	var mounts []string
	for _, name := range []string{"a", "b"} {
		mounts = append(mounts, overlay(t, mkdir(t, dir, name), dir+"/lower"))
	}
	if err := os.Chmod(mounts[1]+"/changed.so", 0o700); err != nil { // copied up
		t.Fatal(err)
	}
	if a, b := open(t, mounts[0]+"/lib.so"), open(t, mounts[1]+"/lib.so"); a.ID != b.ID {
		t.Errorf("file of the shared lower layer: IDs %v and %v, want the same", a.ID, b.ID)
	}
	if a, b := open(t, mounts[0]+"/changed.so"), open(t, mounts[1]+"/changed.so"); a.ID == b.ID {
		t.Errorf("file copied up in one overlay: the same ID %v in both", a.ID)
	}
	if a, b := open(t, dir+"/lower/lib.so"), open(t, dir+"/lower/changed.so"); a.ID == b.ID {
		t.Errorf("two files of the lower layer: the same ID %v", a.ID)
	}
}

func mkdir(t *testing.T, parts ...string) string {
	t.Helper()
	dir := filepath.Join(parts...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// overlay mounts an overlay with its upper layer in dir.
func overlay(t *testing.T, dir, lower string) string {
	t.Helper()
	// The upper layer cannot be on an overlay itself.
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Skipf("cannot mount tmpfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	upper, work, merged := mkdir(t, dir, "upper"), mkdir(t, dir, "work"), mkdir(t, dir, "merged")
	options := "lowerdir=" + lower + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		t.Skipf("cannot mount overlayfs: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(merged, unix.MNT_DETACH) })
	return merged
}

func TestWants(t *testing.T) {
	mine := uint32(os.Getpid())
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		files Files
		m     Mapped
		want  bool
	}{
		{"by name", Files{Names: []string{"no", "libc.so.*"}}, Mapped{Path: "/usr/lib/libc.so.6"}, true},
		{"deleted", Files{Names: []string{"libc.so.6"}}, Mapped{Path: "/usr/lib/libc.so.6 (deleted)"}, true},
		{"other name", Files{Names: []string{"libc.so.*"}}, Mapped{Path: "/usr/lib/xlibc.so.6"}, false},
		{"folder of the name", Files{Names: []string{"libc.so.6"}}, Mapped{Path: "/libc.so.6/x"}, false},
		{"not with paths", Files{Names: []string{"libc.so.6"}, Paths: []string{"/x"}}, Mapped{Path: "/libc.so.6"}, false},
		{"of the process", Files{Names: []string{"libc.so.6"}, PIDs: []uint32{7}}, Mapped{PID: 7, Path: "/libc.so.6"}, true},
		{"of another process", Files{Names: []string{"libc.so.6"}, PIDs: []uint32{7}}, Mapped{PID: 8, Path: "/libc.so.6"}, false},
		{"nothing", Files{PIDs: []uint32{mine}}, Mapped{PID: mine, Path: exe}, false},
		{"program", Files{Names: []string{"no"}, PIDs: []uint32{mine}}, Mapped{PID: mine, Path: exe}, true},
		{"program, not requested", Files{}, Mapped{PID: mine, Path: exe}, false},
	} {
		if got := tt.files.Wants(&tt.m); got != tt.want {
			t.Errorf("%s: Wants = %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestParseMapped(t *testing.T) {
	for line, want := range map[string]Mapped{
		"7f00-7fff r-xp 00001000 fe:01 42                         /lib/a b.so": {Start: 0x7f00, End: 0x7fff, Offset: 0x1000, Inode: 42, Device: 0xfe<<20 | 1, Path: "/lib/a b.so"},
		`7f00-7fff r-xp 00001000 00:00 42 /a\012b`:                             {Start: 0x7f00, End: 0x7fff, Offset: 0x1000, Inode: 42, Path: "/a\nb"},
		"7f00-7fff --xp 00001000 00:00 0 [vsyscall]":                           {Start: 0x7f00, End: 0x7fff, Offset: 0x1000, Path: "[vsyscall]"},
		"7f00-7fff r--p 00001000 fe:01 42 /lib/a.so":                           {},
		"7f00-7fff r-xp 00000000 00:00 0 ":                                     {Start: 0x7f00, End: 0x7fff},
		"7f00-7fff r-xp 0 fe:x 42 /lib":                                        {},
		"7f00 r-xp 0 fe:01 x /lib":                                             {},
		"":                                                                     {},
	} {
		got, path, ok := parseMapped([]byte(line))
		got.Path = string(path)
		if ok != (want != Mapped{}) || ok && got != want {
			t.Errorf("parseMapped(%q) = %+v, %v, want %+v", line, got, ok, want)
		}
	}
}

// TestScan finds a deleted file that this process maps.
func TestScan(t *testing.T) {
	lib := native.Open(t, "corescope-scan.so", []string{"one"})
	want := open(t, lib.Path).ID
	if err := os.Remove(lib.Path); err != nil {
		t.Fatal(err)
	}
	for _, pids := range [][]uint32{{uint32(os.Getpid())}, nil} {
		var found []ID
		_, err := Scan(pids, func(m *Mapped) {
			if m.PID != uint32(os.Getpid()) || m.Base() != "corescope-scan.so" {
				return
			}
			if f, err := m.Open(); err != nil {
				t.Errorf("open mapped file: %v", err)
			} else {
				found = append(found, f.ID)
				f.Close()
			}
		})
		if err != nil || len(found) != 1 || found[0] != want {
			t.Errorf("scan of %v: %v, %v, want %v", pids, found, err, want)
		}
	}
}

// TestWatch expects the new mappings of this process and of a process that it starts.
func TestWatch(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to watch all processes")
	}
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan Mapped, 1<<16)
	ended := make(chan error)
	go func() {
		ended <- w.Run(func(m *Mapped) { seen <- *m }, func() {})
	}()
	lib := native.Open(t, "corescope-watch.so", []string{"one"})
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	exe, _ := os.Executable()
	for _, want := range []Mapped{{PID: uint32(os.Getpid()), Path: lib.Path}, {PID: uint32(cmd.Process.Pid), Path: exe}} {
		for m := range seen {
			if m.PID != want.PID || m.Path != want.Path {
				continue
			}
			if f, err := m.Open(); want.PID == uint32(os.Getpid()) && (err != nil || f.ID != open(t, lib.Path).ID || m.Inode == 0) {
				t.Errorf("open %+v: %v", m, err)
			}
			break
		}
	}
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// TestWatchOverrun creates more mappings than the rings hold and expects a call of missed.
func TestWatchOverrun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to watch all processes")
	}
	w, err := NewWatch()
	if err != nil {
		t.Fatal(err)
	}
	lib := native.Write(t, filepath.Join(t.TempDir(), "corescope-overrun.so"), []string{"one"})
	f, err := os.Open(lib.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range watchBytes / 64 * runtime.NumCPU() {
		b, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		unix.Munmap(b)
	}
	missed := make(chan struct{}, 1<<16)
	ended := make(chan error)
	go func() {
		ended <- w.Run(func(*Mapped) {}, func() { missed <- struct{}{} })
	}()
	// The kernel writes a lost record before the next record that fits.
	native.Open(t, "corescope-after.so", []string{"one"})
	for range runtime.NumCPU() {
		if err := exec.Command("/proc/self/exe", "-test.run=^$").Run(); err != nil {
			t.Fatal(err)
		}
	}
	<-missed
	if err := w.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.Close()
}
