package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func diskTree(t *testing.T) string {
	return tree(t, map[string]string{
		"sys/dev/block/254:0":            "-> ../../devices/pci0/virtio1/block/vda",
		"sys/dev/block/254:1":            "-> ../../devices/pci0/virtio1/block/vda/vda1",
		"sys/dev/block/259:1048575":      "-> ../../devices/pci0/nvme/nvme0n1/nvme0n1p2",
		"sys/dev/block/252:0":            "-> ../../devices/virtual/block/dm-0",
		"sys/dev/block/104:0":            "-> ../../devices/pci0/block/cciss!c0d0",
		"sys/class/block/vda/dev":        "254:0\n",
		"sys/class/block/vda1/dev":       "254:1\n",
		"sys/class/block/nvme0n1p2/dev":  "259:1048575\n",
		"sys/class/block/dm-0/dev":       "252:0\n",
		"sys/class/block/cciss!c0d0/dev": "104:0\n",
		"sys/class/block/odd/dev":        "invalid\n",
		"sys/block/vda/dev":              "254:0\n",
		"sys/block/dm-0/dev":             "252:0\n",
		"sys/block/dm-0/dm/name":         "vg-root\n",
	})
}

func TestDisksName(t *testing.T) {
	disks := NewDisks(diskTree(t))
	for dev, want := range map[uint32]string{
		254 << 20: "vda", 254<<20 | 1: "vda1", 259<<20 | 1048575: "nvme0n1p2", 252 << 20: "dm-0",
		104 << 20: "cciss/c0d0", 0: "", 254<<20 | 2: "",
	} {
		if got, ok := disks.Name(dev); got != want || ok != (want != "") {
			t.Errorf("Name(%d:%d) = %q, %v; want %q", dev>>20, dev&(1<<20-1), got, ok, want)
		}
	}
}

func TestDisksDev(t *testing.T) {
	disks := NewDisks(diskTree(t))
	for name, want := range map[string]uint32{
		"vda": 254 << 20, "/dev/vda": 254 << 20, "vda1": 254<<20 | 1, "nvme0n1p2": 259<<20 | 1048575,
		"dm-0": 252 << 20, "vg-root": 252 << 20, "/dev/mapper/vg-root": 252 << 20, "/dev/../dev/vda1": 254<<20 | 1,
		"cciss/c0d0": 104 << 20, "/dev/cciss/c0d0": 104 << 20,
	} {
		if got, err := disks.Dev(name); got != want || err != nil {
			t.Errorf("Dev(%q) = %d:%d, %v; want %d:%d", name, got>>20, got&(1<<20-1), err, want>>20, want&(1<<20-1))
		}
	}
	for _, name := range []string{"", ".", "..", "/", "/dev/", "/dev", "sda", "/dev/sda", "odd", "vda/", "/etc/vda", "/dev/mapper/x", "../block/vda"} {
		if got, err := disks.Dev(name); !errors.Is(err, ErrNoDisk) {
			t.Errorf("Dev(%q) = %d, %v; want ErrNoDisk", name, got, err)
		}
	}
}

func TestDisksAddedAndRemoved(t *testing.T) {
	root, now := t.TempDir(), newClock()
	disks := NewDisks(root)
	disks.now = now.now
	const dev = 8<<20 | 16
	link := filepath.Join(root, "sys/dev/block/8:16")
	expect := func(when, want string) {
		t.Helper()
		if got, ok := disks.Name(dev); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v; want %q", when, got, ok, want)
		}
	}
	expect("before it is added", "")
	add(t, root, "sys/dev/block/8:16", "-> ../../devices/block/sdb")
	expect("immediately after it is added", "")
	now.add(missTTL)
	expect("a second later", "sdb")
	check(t, os.Remove(link))
	now.add(missTTL)
	expect("after it is removed", "sdb")
	add(t, root, "sys/dev/block/8:16", "-> ../../devices/block/sdc")
	expect("immediately after its number is reused", "sdb")
	now.add(missTTL)
	expect("a second after its number is reused", "sdc")
}

// TestDisksLive translates the number and the name of each disk of this machine into each other.
func TestDisksLive(t *testing.T) {
	partitions, err := os.ReadFile("/proc/partitions")
	check(t, err)
	disks, seen := NewDisks("/"), 0
	for line := range strings.Lines(string(partitions)) {
		var major, minor, blocks uint32
		var name string
		if n, _ := fmt.Sscan(line, &major, &minor, &blocks, &name); n != 4 {
			continue
		}
		seen++
		dev := major<<20 | minor
		if got, ok := disks.Name(dev); got != name || !ok {
			t.Errorf("Name(%d:%d) = %q, %v; want %q", major, minor, got, ok, name)
		}
		for _, name := range []string{name, "/dev/" + name} {
			if got, err := disks.Dev(name); got != dev || err != nil {
				t.Errorf("Dev(%q) = %d, %v; want %d", name, got, err, dev)
			}
		}
	}
	if seen == 0 {
		t.Skipf("no disk in /proc/partitions:\n%s", partitions)
	}
}

func BenchmarkDisksName(b *testing.B) {
	disks := NewDisks("/")
	for b.Loop() {
		disks.Name(254 << 20)
	}
}
