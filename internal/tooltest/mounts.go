package tooltest

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mounts is a private mount namespace of a test. Other processes do not see its mounts, which
// disappear at the end of the test.
type Mounts struct{ root string }

// NewMounts moves the test's goroutine to its own thread in a new mount namespace until the test
// ends. In a process of [InNamespaces] it uses the namespace of the process.
func NewMounts(t testing.TB) *Mounts {
	t.Helper()
	Root(t)
	if IsInNamespaces(t) {
		return &Mounts{}
	}
	runtime.LockOSThread() // never unlocked, so the thread exits with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	return &Mounts{fmt.Sprintf("/proc/%d/task/%d/root", os.Getpid(), unix.Gettid())}
}

// At converts a path in the namespace to a path that other threads can use.
func (m *Mounts) At(path string) string { return m.root + path }

// Mount mounts a file system at a new directory and returns its path in the namespace. Call it from
// the goroutine that called NewMounts.
func (m *Mounts) Mount(t testing.TB, source, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(source, dir, kind, 0, options); err != nil {
		t.Fatalf("mount %s: %v", kind, err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

//go:embed testdata/*.img.gz
var images embed.FS

// MountExt4 mounts an empty ext4 on a loop device; see mountImage.
//
// Its image was created with mke2fs -t ext4 -O ^has_journal,^resize_inode -b 4096 -I 256 -N 32 -m 0
// FILE 1m.
func (m *Mounts) MountExt4(t testing.TB) string {
	t.Helper()
	return m.mountImage(t, "ext4", "ext4")
}

// MountExt4Journal mounts an empty ext4 with a journal on a loop device; see mountImage.
//
// Its image was created with mke2fs -t ext4 -b 4096 -I 256 -N 32 -m 0 -J size=4
// -O ^resize_inode,^metadata_csum_seed,^orphan_file FILE 16m.
func (m *Mounts) MountExt4Journal(t testing.TB) string {
	t.Helper()
	return m.mountImage(t, "ext4journal", "ext4")
}

// MountXFS mounts an empty xfs on a loop device; see mountImage.
//
// Its image of 16 MiB was created with TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 mkfs.xfs
// -s size=4096 -m crc=1,reflink=0,rmapbt=0,finobt=0,bigtime=0 -i sparse=0,nrext64=0 -d agcount=1. The
// variables permit the size.
func (m *Mounts) MountXFS(t testing.TB) string {
	t.Helper()
	return m.mountImage(t, "xfs", "xfs")
}

// MountBtrfs mounts an empty btrfs on a loop device; see mountImage.
//
// Its image of 16 MiB was created with mkfs.btrfs -M -m single -d single -n 4096.
func (m *Mounts) MountBtrfs(t testing.TB) string {
	t.Helper()
	return m.mountImage(t, "btrfs", "btrfs")
}

// Subvolume creates a btrfs subvolume at path.
func Subvolume(t testing.TB, path string) {
	t.Helper()
	const create = 0x5000940e // BTRFS_IOC_SUBVOL_CREATE
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer parent.Close()
	args := struct { // struct btrfs_ioctl_vol_args
		fd   int64
		name [4088]byte
	}{}
	copy(args.name[:], filepath.Base(path))
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, parent.Fd(), create, uintptr(unsafe.Pointer(&args)))
	if errno != 0 {
		t.Fatalf("create subvolume %s: %v", path, errno)
	}
}

// mountImage mounts an image of testdata. It skips the test if loop devices or the file system are
// not available.
func (m *Mounts) mountImage(t testing.TB, image, kind string) string {
	t.Helper()
	packed, err := images.ReadFile("testdata/" + image + ".img.gz")
	if err != nil {
		t.Fatal(err)
	}
	return m.mountPacked(t, packed, kind)
}

func (m *Mounts) mountPacked(t testing.TB, packed []byte, kind string) string {
	t.Helper()
	FileSystem(t, kind)
	return m.Mount(t, LoopOver(t, unpack(t, packed), 0).Path, kind, "")
}

// FileSystem skips the test if the kernel does not support the type of file system.
func FileSystem(t testing.TB, kind string) {
	t.Helper()
	kinds, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(kinds, []byte("\t"+kind+"\n")) {
		t.Skipf("file system %s is not supported by this kernel", kind)
	}
}

// unpack decompresses an image to a file in memory and returns its file descriptor.
func unpack(t testing.TB, packed []byte) int {
	t.Helper()
	back, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(back) })
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	image, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(back, image, 0); err != nil {
		t.Fatal(err)
	}
	return back
}
