package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoDisk means that no block device has that name.
var ErrNoDisk = errors.New("no such disk or partition")

// minorBits is the number of bits of the minor number in the kernel's dev_t, MAJOR<<20|MINOR. The
// dev_t of user space has another format.
const minorBits = 20

// Disks translates between numbers and names of disks and partitions, from /sys. Safe for
// concurrent use.
type Disks struct {
	root string
	now  func() time.Time

	mu    sync.Mutex
	names map[uint32]diskName
}

type diskName struct {
	name string // "" if not found
	read time.Time
}

// NewDisks returns the block devices of the machine below root.
func NewDisks(root string) *Disks {
	return &Disks{root: filepath.Join("/", root), now: time.Now, names: map[uint32]diskName{}}
}

// Bound returns more than the number of disks and partitions, with space for those that are added while a
// tool runs.
func (d *Disks) Bound() uint32 {
	devices, _ := os.ReadDir(filepath.Join(d.root, "sys/class/block"))
	return uint32(2*len(devices) + 16)
}

// Name returns the kernel's name ("vda", "nvme0n1p2", "dm-0") of a device number in the kernel's
// format, MAJOR<<20|MINOR. It reads a name, or a failed lookup, again after a second, because the
// kernel reuses the numbers of partitions and of hot-plugged disks. A removed device keeps its last
// name.
func (d *Disks) Name(dev uint32) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	cached, ok := d.names[dev]
	if now := d.now(); !ok || now.Sub(cached.read) >= missTTL {
		cached.read = now
		if name, ok := d.read(dev); ok {
			cached.name = name
		}
		d.names[dev] = cached
	}
	return cached.name, cached.name != ""
}

// read returns the name from the link /sys/dev/block/MAJOR:MINOR, because /proc/partitions lacks
// devices without a size.
func (d *Disks) read(dev uint32) (string, bool) {
	number := fmt.Sprintf("%d:%d", dev>>minorBits, dev&(1<<minorBits-1))
	link, err := os.Readlink(filepath.Join(d.root, "sys/dev/block", number))
	if err != nil {
		return "", false
	}
	return kernelName(filepath.Base(link)), true
}

// Dev returns the device number, in the format of Name, of a disk or partition. The name is the
// kernel's name ("vda"), a path ("/dev/vda", "/dev/disk/by-id/…"), a device-mapper name
// ("vg-root") or the number of an existing device ("8:0").
//
// Returns ErrNoDisk.
func (d *Disks) Dev(name string) (uint32, error) {
	if strings.HasPrefix(name, "/") {
		return d.devOfPath(name)
	}
	if dev, ok := d.devOfName(name); ok {
		return dev, nil
	}
	if dev, ok := parseDev(name); ok {
		if _, exists := d.Name(dev); exists {
			return dev, nil
		}
	}
	return 0, fmt.Errorf("find disk %q: %w", name, ErrNoDisk)
}

func (d *Disks) devOfPath(path string) (uint32, error) {
	full := filepath.Join(d.root, path)
	var stat unix.Stat_t
	if unix.Stat(full, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		return unix.Major(stat.Rdev)<<minorBits | unix.Minor(stat.Rdev), nil
	}
	// The device node can be missing, as in a container with its own /dev. Then use the name.
	if name, ok := strings.CutPrefix(filepath.Clean(path), "/dev/"); ok {
		if dev, ok := d.devOfName(strings.TrimPrefix(name, "mapper/")); ok {
			return dev, nil
		}
	}
	return 0, fmt.Errorf("find disk %q: %w", path, ErrNoDisk)
}

func (d *Disks) devOfName(name string) (uint32, bool) {
	sysName := strings.ReplaceAll(name, "/", "!")
	if sysName == "" || sysName == "." || sysName == ".." {
		return 0, false
	}
	if dev, ok := d.readDev(filepath.Join("sys/class/block", sysName)); ok {
		return dev, true
	}
	return d.devOfMapper(name)
}

func (d *Disks) devOfMapper(name string) (uint32, bool) {
	block := filepath.Join(d.root, "sys/block")
	entries, _ := os.ReadDir(block)
	for _, e := range entries {
		mapper, err := readFile(filepath.Join(block, e.Name(), "dm/name"), 4096)
		if err == nil && strings.TrimSuffix(string(mapper), "\n") == name {
			return d.readDev(filepath.Join("sys/block", e.Name()))
		}
	}
	return 0, false
}

func (d *Disks) readDev(dir string) (uint32, bool) {
	data, err := readFile(filepath.Join(d.root, dir, "dev"), 64)
	if err != nil {
		return 0, false
	}
	return parseDev(strings.TrimSpace(string(data)))
}

func parseDev(s string) (uint32, bool) {
	major, minor, ok := strings.Cut(s, ":")
	if !ok {
		return 0, false
	}
	hi, err1 := strconv.ParseUint(major, 10, 32-minorBits)
	lo, err2 := strconv.ParseUint(minor, 10, minorBits)
	return uint32(hi<<minorBits | lo), err1 == nil && err2 == nil
}

// kernelName converts a name in sysfs to the kernel's name: sysfs replaces a slash by "!"
// ("cciss!c0d0").
func kernelName(sysName string) string { return strings.ReplaceAll(sysName, "!", "/") }
