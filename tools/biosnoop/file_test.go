package biosnoop

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/system"
	"github.com/corescope/corescope/internal/tooltest"
)

// With this environment, the test binary writes a file or reads it with direct I/O, and exits.
const (
	writesTo  = "BIOSNOOP_TEST_WRITE"
	readsFrom = "BIOSNOOP_TEST_READ"
)

// fileSize is the size of the files in the tests, in bytes.
const fileSize = 1 << 20

func TestMain(m *testing.M) {
	var err error
	switch write, read := os.Getenv(writesTo), os.Getenv(readsFrom); {
	case write != "":
		err = writeFile(write, 0)
	case read != "":
		err = readDirect(read)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeFile overwrites a file in writes of 64 KiB.
func writeFile(path string, flags int) error {
	fd, err := unix.Open(path, unix.O_WRONLY|flags, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	b, err := buffer()
	for off := int64(0); err == nil && off < fileSize; off += int64(len(b)) {
		_, err = unix.Pwrite(fd, b, off)
	}
	return err
}

func readDirect(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	b, err := buffer()
	for off := int64(0); err == nil && off < fileSize; off += int64(len(b)) {
		_, err = unix.Pread(fd, b, off)
	}
	return err
}

// buffer returns resident memory that is aligned for direct I/O.
func buffer() ([]byte, error) {
	return unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
}

// noCow is FS_NOCOW_FL of linux/fs.h.
const noCow = 0x00800000

// newFile creates a file of fileSize bytes whose blocks adjoin those of no other file of the tests,
// because a request can contain data of two files then. They stay there: btrfs must not write the data
// elsewhere.
func newFile(t *testing.T, path string) {
	t.Helper()
	for _, f := range []struct {
		path string
		size int64
	}{{path, fileSize}, {path + ".gap", 64 << 10}} {
		file, err := os.Create(f.path)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, noCow) // others do not have it
		if err := unix.Fallocate(int(file.Fd()), 0, 0, f.size); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
}

// runIn runs the test binary in a cgroup and returns its PID.
func runIn(t *testing.T, cgroup, variable, path string) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := tooltest.InCgroup(cgroup, self)
	cmd.Env = append(os.Environ(), variable+"="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", path, err, out)
	}
	return cmd.ProcessState.Pid()
}

// actor is a process that reads or writes a file.
type actor struct {
	cgroup, variable string
	pid              int
}

// diskOf returns the name of the loop device of a file system that the calling thread has mounted.
func diskOf(t *testing.T, dir string) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if _, source, ok := strings.Cut(line, " - "); ok && strings.Contains(line, " "+dir+" ") {
			return filepath.Base(strings.Fields(source)[1])
		}
	}
	t.Fatalf("%s is not mounted", dir)
	return ""
}

// fileColumns are the columns of the tests.
const fileColumns = "+file,file_inode,owner,owner_pid,owner_cgroup"

// fileSystems are those that the tests use.
func fileSystems() map[string]func(*tooltest.Mounts, *testing.T) string {
	return map[string]func(*tooltest.Mounts, *testing.T) string{
		"ext4":  func(m *tooltest.Mounts, t *testing.T) string { return m.MountExt4Journal(t) },
		"xfs":   func(m *tooltest.Mounts, t *testing.T) string { return m.MountXFS(t) },
		"btrfs": func(m *tooltest.Mounts, t *testing.T) string { return m.MountBtrfs(t) },
	}
}

// TestFile has three processes write files, each in its own cgroup, and a fourth one read a file with
// direct I/O; a kernel thread writes the data to the disk.
func TestFile(t *testing.T) {
	tooltest.OnHooks(t, "dirty", "issue")
	cgroups, err := system.OpenCgroups("/")
	if err != nil {
		t.Skipf("cgroups are unavailable: %v", err)
	}
	for kind, mount := range fileSystems() {
		t.Run(kind, func(t *testing.T) {
			mounts := tooltest.NewMounts(t)
			mountPoint := mount(mounts, t)
			dir := mounts.At(mountPoint)
			actors := map[string]*actor{}
			for i, name := range []string{"a", "b", "c", "read"} {
				variable := writesTo
				if i == 3 {
					variable = readsFrom
				}
				newFile(t, filepath.Join(dir, name))
				cgroup := tooltest.Cgroup(t, cmp.Or(cgroups.Default(), "cgroup2"), fmt.Sprintf("corescope-file-%d-%s", os.Getpid(), name))
				if kind == "btrfs" && name == "read" && !btrfsHasInode(t) {
					continue // the file of direct I/O is unknown there
				}
				actors[name] = &actor{cgroup: cgroup, variable: variable}
			}
			if err := writeFile(filepath.Join(dir, "read"), unix.O_DIRECT); err != nil {
				t.Fatal(err)
			}
			sync(t, dir)
			disk := diskOf(t, mountPoint)
			res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", disk, "--columns", fileColumns}, func() {
				for name, a := range actors {
					a.pid = runIn(t, a.cgroup, a.variable, filepath.Join(dir, name))
				}
				sync(t, dir)
			})
			// The mount is known if the main thread of the test happens to be the one of this test.
			checkActors(t, res, actors, []string{disk + ":/", mountPoint + "/"})
		})
	}
}

// btrfsHasInode reports whether a struct btrfs_bio has the inode (kernel 6.3).
func btrfsHasInode(t *testing.T) bool {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var bio *btf.Struct
	if err := kernel.TypeByName("btrfs_bio", &bio); err != nil {
		module, err := btf.LoadKernelModuleSpec("btrfs")
		if err != nil || module.TypeByName("btrfs_bio", &bio) != nil {
			return false
		}
	}
	return slices.ContainsFunc(bio.Members, func(m btf.Member) bool { return m.Name == "inode" })
}

// TestBuffer writes a file with direct I/O from a buffer that is mapped from another one, while the page
// cache writes back that one too. Then it reads the disk itself, and writes metadata.
func TestBuffer(t *testing.T) {
	tooltest.OnHooks(t, "dirty", "issue")
	mounts := tooltest.NewMounts(t)
	mountPoint := mounts.MountExt4Journal(t)
	dir, disk := mounts.At(mountPoint), diskOf(t, mountPoint)
	newFile(t, filepath.Join(dir, "buffer"))
	newFile(t, filepath.Join(dir, "direct"))
	buf := mapFile(t, filepath.Join(dir, "buffer"))
	direct, err := unix.Open(filepath.Join(dir, "direct"), unix.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(direct)
	device, err := unix.Open("/dev/"+disk, unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(device)
	sync(t, dir)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", disk, "--columns", fileColumns}, func() {
		for off := 0; off < fileSize; off += 64 << 10 {
			buf[off] ^= 1
			if _, err := unix.Pwrite(direct, buf[off:off+64<<10], int64(off)); err != nil {
				t.Error(err)
			}
		}
		sync(t, dir)
		_ = unix.Fadvise(device, 0, 0, unix.FADV_DONTNEED)
		if _, err := unix.Pread(device, make([]byte, 4096), 12<<20); err != nil {
			t.Error(err)
		}
	})
	bytes := map[string]float64{}
	for _, r := range res.Events {
		name, isFile := within(r.Str("file"), []string{disk + ":/", mountPoint + "/"})
		if !isFile {
			bytes[r.Str("file")] += r.Num("bytes")
			continue
		}
		bytes[name] += r.Num("bytes")
		if r.Num("owner_pid") != float64(os.Getpid()) {
			t.Errorf("owner of %v, want process %d", r, os.Getpid())
		}
	}
	// One page in 64 KiB of the buffer is dirty, and what the kernel keeps in the same folio.
	if bytes["direct"] != fileSize || bytes["buffer"] < 16*4096 || bytes["buffer"] > fileSize || bytes["[journal]"] == 0 || bytes["[device]"] == 0 {
		t.Errorf("bytes by file %v, want %d of direct, at least %d of buffer, some of the journal and the device", bytes, fileSize, 16*4096)
	}
}

// mapFile maps a file of fileSize bytes.
func mapFile(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	buf, err := unix.Mmap(int(file.Fd()), 0, fileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(buf) })
	return buf
}

// sync writes all data of a file system to its disk.
func sync(t *testing.T, dir string) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Syncfs(fd); err != nil {
		t.Fatal(err)
	}
}

// checkActors compares the rows with what the processes did: at least 99 % of the bytes have the right
// file and owner, and none has a wrong one.
func checkActors(t *testing.T, res *tooltest.Result, actors map[string]*actor, dirs []string) {
	t.Helper()
	if lost := res.Summary.Num("lost"); lost != 0 {
		t.Errorf("%v events lost: %v", lost, res.Summary.Object("reasons"))
	}
	bytes := map[string]float64{}
	for _, r := range res.Events {
		path, isFile := within(r.Str("file"), dirs)
		a := actors[path]
		letter := map[bool]string{true: "W", false: "R"}[a != nil && a.variable == writesTo]
		switch {
		case !isFile:
			if r.Has("owner_pid") || r.Has("file_inode") {
				t.Errorf("row without a file has an owner or an inode: %v", r)
			}
		case a == nil || !strings.Contains(r.Str("rwbs"), letter):
			t.Errorf("no process did this: %v", r)
		case r.Has("owner_pid") && (r.Num("owner_pid") != float64(a.pid) || r.Str("owner_cgroup") != "/"+filepath.Base(a.cgroup)):
			t.Errorf("owner of %v, want process %d in %s", r, a.pid, a.cgroup)
		case r.Has("owner_pid"):
			bytes[path] += r.Num("bytes")
		}
	}
	for path, a := range actors {
		if bytes[path] < 0.99*fileSize || bytes[path] > fileSize {
			t.Errorf("%v bytes of %s (%s) for process %d, want %d: %v", bytes[path], path, a.variable, a.pid, fileSize, labels(res))
		}
	}
}

// within returns the part of a path below one of the directories.
func within(path string, dirs []string) (string, bool) {
	for _, dir := range dirs {
		if rest, ok := strings.CutPrefix(path, dir); ok {
			return rest, true
		}
	}
	return "", false
}

// labels returns the bytes by file and owner, for messages.
func labels(res *tooltest.Result) map[string]float64 {
	all := map[string]float64{}
	for _, r := range res.Events {
		all[r.Str("rwbs")+" "+r.Str("file")+" "+strconv.FormatFloat(r.Num("owner_pid"), 'f', 0, 64)] += r.Num("bytes")
	}
	return all
}

// TestSmallFiles writes small files next to each other, so a request can have the data of several ones:
// all are of the same owner.
func TestSmallFiles(t *testing.T) {
	const files, size = 12, 8192
	tooltest.OnHooks(t, "dirty", "issue")
	mounts := tooltest.NewMounts(t)
	mountPoint := mounts.MountExt4Journal(t)
	dir, disk := mounts.At(mountPoint), diskOf(t, mountPoint)
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", disk, "--columns", fileColumns}, func() {
		for i := range files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("small", i)), make([]byte, size), 0o600); err != nil {
				t.Error(err)
			}
		}
		sync(t, dir)
	})
	owned := 0.0
	for _, r := range res.Events {
		_, isFile := within(r.Str("file"), []string{disk + ":/", mountPoint + "/"})
		switch {
		case !isFile && r.Str("file") != "[several]":
			continue
		case r.Num("owner_pid") == float64(os.Getpid()):
			owned += r.Num("bytes")
		case r.Has("owner_pid"):
			t.Errorf("owner of %v, want process %d", r, os.Getpid())
		}
	}
	if owned < files*size/2 {
		t.Errorf("%v bytes are of this process, want %d: %v", owned, files*size, labels(res))
	}
	t.Log(labels(res))
}
