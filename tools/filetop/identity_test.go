package filetop

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// written is a file that was written to and removed, as described by stat(2) and FS_IOC_GETVERSION.
type written struct {
	inode      uint64
	generation uint32
}

const getVersion = 0x80087601 // FS_IOC_GETVERSION

// write creates a file, writes to it once and removes it.
func write(t *testing.T, path string, size int) (w written) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	must(t)(f.Write(make([]byte, size)))
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	w.inode = st.Ino
	if generation, err := unix.IoctlGetUint32(int(f.Fd()), getVersion); err == nil {
		w.generation = generation
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	return w
}

func byName(rows []tooltest.Row, name string) (found []tooltest.Row) {
	for _, r := range rows {
		if r.Str("file") == name {
			found = append(found, r)
		}
	}
	return found
}

// writeTwo writes to two files, of which the second reuses the inode number of the first, and
// returns their rows.
func writeTwo(t *testing.T, dir string) (files []written, rows [][]tooltest.Row) {
	t.Helper()
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() {
		files = append(files, write(t, filepath.Join(dir, "alpha"), 1000), write(t, filepath.Join(dir, "beta"), 200000))
	})
	if len(files) != 2 || files[0].inode != files[1].inode {
		t.Fatalf("files %+v, want the same inode number", files)
	}
	rows = [][]tooltest.Row{byName(res.Rows, "alpha"), byName(res.Rows, "beta")}
	for i, size := range []float64{1000, 200000} {
		if len(rows[i]) != 1 || rows[i][0].Num("write_bytes") != size || rows[i][0].Num("inode") != float64(files[i].inode) {
			t.Fatalf("file %d has rows %v, want one of %v bytes; all are %v", i, rows[i], size, res.Rows)
		}
	}
	return files, rows
}

// TestReusedInode checks that two files that had the same inode number one after another are
// separate rows.
func TestReusedInode(t *testing.T) {
	m := tooltest.NewMounts(t)
	files, rows := writeTwo(t, m.At(m.MountExt4(t)))
	for i, f := range files {
		if got := rows[i][0].Num("generation"); got != float64(f.generation) || f.generation == 0 {
			t.Errorf("generation %v, want %d of FS_IOC_GETVERSION", got, f.generation)
		}
	}
}

// TestReusedInodeOfOverlay checks the same on overlayfs, which has the inode numbers of the
// underlying file system, and no generations.
func TestReusedInodeOfOverlay(t *testing.T) {
	m := tooltest.NewMounts(t)
	disk := m.MountExt4(t)
	for _, dir := range []string{"lower", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(m.At(disk), dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(m.At(disk), "lower/below"), make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	tooltest.FileSystem(t, "overlay")
	dir := m.At(m.Mount(t, "overlay", "overlay", "lowerdir="+disk+"/lower,upperdir="+disk+"/upper,workdir="+disk+"/work"))
	writeTwo(t, dir)

	// A file of the lower layer is copied when it is written to, and remains the same file.
	path := filepath.Join(dir, "below")
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDONLY} {
			f, err := os.OpenFile(path, flag, 0)
			if err != nil {
				t.Error(err)
				return
			}
			if flag == os.O_RDWR {
				must(t)(f.WriteAt(make([]byte, 7), 0))
			} else {
				must(t)(f.ReadAt(make([]byte, 50), 0))
			}
			f.Close()
		}
	})
	rows := byName(res.Rows, "below")
	if len(rows) != 1 || sum(rows, "reads") != 2 || sum(rows, "writes") != 1 {
		t.Errorf("rows %v, want one", rows)
	}
}

// TestRenamed checks that a renamed file remains one row, with its first name, on any CPU.
func TestRenamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "name-0")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const times = 4
	res := tooltest.JSON(t, Tool, []string{"--pid", self()}, func() {
		runtime.LockOSThread() // the thread exits with the goroutine
		for i := range times {
			var cpu unix.CPUSet
			cpu.Set(i % runtime.NumCPU())
			_ = unix.SchedSetaffinity(0, &cpu) // ignored, because the process may be restricted to one CPU
			must(t)(f.Write(make([]byte, 10)))
			name := filepath.Join(dir, "name-"+string(rune('1'+i)))
			if err := os.Rename(path, name); err != nil {
				t.Error(err)
			}
			path = name
		}
	})
	rows := res.Where(func(r tooltest.Row) bool { return r.Num("inode") == inodeOf(t, f) })
	if len(rows) != 1 || rows[0].Str("file") != "name-0" || rows[0].Num("writes") != times {
		t.Errorf("rows %v, want one of %d writes", rows, times)
	}
}

func inodeOf(t *testing.T, f *os.File) float64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return float64(st.Ino)
}

// Files of two btrfs subvolumes have the same name and inode number, but different devices, which
// are those that stat(2) returns.
func TestSubvolumes(t *testing.T) {
	if !tooltest.InNamespaces(t, unix.CLONE_NEWNS) {
		return
	}
	dir := tooltest.NewMounts(t).MountBtrfs(t)
	var files [2]*os.File
	var st [2]unix.Stat_t
	for i, name := range []string{"one", "two"} {
		tooltest.Subvolume(t, filepath.Join(dir, name))
		f, err := os.Create(filepath.Join(dir, name, "file"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Fstat(int(f.Fd()), &st[i]); err != nil {
			t.Fatal(err)
		}
		files[i] = f
	}
	if st[0].Ino != st[1].Ino || st[0].Dev == st[1].Dev {
		t.Fatalf("files %+v, want the same inode number on two devices", st)
	}
	load := func() {
		must(t)(files[0].Write(make([]byte, 100)))
		must(t)(files[1].Write(make([]byte, 2000)))
	}
	run := func(args ...string) []tooltest.Row {
		return byName(tooltest.JSON(t, Tool, append(args, "--pid", self()), load).Rows, "file")
	}
	rows := run()
	if byBytes := sum(rows, "write_bytes"); len(rows) != 2 || byBytes != 2100 {
		t.Errorf("rows %v, want one for each file", rows)
	}
	if !tooltest.HasType(t, "btrfs", "btrfs_inode") {
		t.Skip("the kernel does not describe the types of btrfs, so devices are those of the file system")
	}
	for i, size := range []float64{100, 2000} {
		device := fmt.Sprintf("%d:%d", unix.Major(st[i].Dev), unix.Minor(st[i].Dev))
		onDevice := func(rows []tooltest.Row) (found []tooltest.Row) {
			for _, r := range rows {
				if r.Str("device") == device {
					found = append(found, r)
				}
			}
			return found
		}
		if got := sum(onDevice(rows), "write_bytes"); got != size {
			t.Errorf("%v bytes of device %s, want %v: %v", got, device, size, rows)
		}
		below := run("-d", filepath.Dir(files[i].Name()))
		if got := sum(below, "write_bytes"); got != size || len(onDevice(below)) != len(below) {
			t.Errorf("%v bytes below %s, want %v: %v", got, files[i].Name(), size, below)
		}
	}
	if got := sum(run("-d", dir), "write_bytes"); got != 2100 {
		t.Errorf("%v bytes below both directories, want 2100", got)
	}
}

func sum(rows []tooltest.Row, key string) (n float64) {
	for _, r := range rows {
		n += r.Num(key)
	}
	return n
}
