package biolatency

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// Definitions for the BLKPG ioctl, from linux/blkpg.h.
type (
	blkpgArg struct {
		op, flags, length int32
		data              *blkpgPartition
	}
	blkpgPartition struct {
		start, length int64 // bytes
		number        int32
		_             [128]byte
	}
)

const blkpgAdd = 1

// partition creates a loop device with one partition and returns both.
func partition(t testing.TB) (*loop, *os.File) {
	t.Helper()
	l := newLoop(t, unix.LO_FLAGS_PARTSCAN)
	part := blkpgPartition{start: loopSize / 4, length: partSize, number: 1}
	ioctl(t, l.dev.Fd(), unix.BLKPG, unsafe.Pointer(&blkpgArg{op: blkpgAdd, length: int32(unsafe.Sizeof(part)), data: &part}))
	f, err := os.OpenFile(l.path+"p1", os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		t.Skipf("no device nodes are created for partitions: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return l, f
}

func TestPartitions(t *testing.T) {
	tooltest.OnHooks(t, "issue", "complete")
	l, p := partition(t)
	load := func() {
		writeBlocks(t, l.dev, 10)
		writeBlocks(t, p, 20)
	}
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-D", "-P", "-d", l.name}, load)
	for name, n := range map[string]float64{l.name: 10, l.name + "p1": 20} {
		if h := find(t, res, map[string]string{"disk": l.name, "partition": name}); h.Num("count") != n {
			t.Errorf("%v writes of %s, want %v", h.Num("count"), name, n)
		}
	}
	res = tooltest.JSONUndisturbed(t, Tool, []string{"-D", "-d", p.Name()}, load)
	if h := find(t, res, map[string]string{"disk": l.name}); h.Num("count") != 20 {
		t.Errorf("%v writes of the partition, want 20", h.Num("count"))
	}
}

func kernelTypes(t testing.TB) *btf.Spec {
	t.Helper()
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// unaccounted returns the partition that I/O to l's partition is reported for if I/O accounting is
// off: before 5.12 a bio only refers to the disk.
func unaccounted(t testing.TB, l *loop) string {
	t.Helper()
	var bio *btf.Struct
	if err := kernelTypes(t).TypeByName("bio", &bio); err != nil {
		t.Fatal(err)
	}
	for _, m := range bio.Members {
		if m.Name == "bi_bdev" {
			return l.name + "p1"
		}
	}
	return l.name
}

// TestWithoutAccounting checks requests without a start time and partition.
func TestWithoutAccounting(t *testing.T) {
	tooltest.OnHooks(t, "insert", "issue", "complete")
	l, p := partition(t)
	l.account(t, "0")
	name := unaccounted(t, l)
	for _, scheduler := range []string{"none", "mq-deadline"} {
		if !l.setScheduler(t, scheduler) {
			continue
		}
		const n = 1000 // reuses each request of the disk several times
		res := tooltest.JSONUndisturbed(t, Tool, []string{"--stages", "-P", "-d", l.name, "--pid", pid()}, func() { readBlocks(t, p, n) })
		for _, stage := range []string{"queue", "device", "total"} {
			if h := find(t, res, map[string]string{"stage": stage, "partition": name}); h.Num("count") != n {
				t.Errorf("%s: %v times of %s, want %d", scheduler, h.Num("count"), stage, n)
			}
		}
		checkCounters(t, res, nil)
	}
}

// zram creates a disk without requests.
func zram(t testing.TB) *loop {
	t.Helper()
	tooltest.Root(t)
	n, err := os.ReadFile("/sys/class/zram-control/hot_add")
	if err != nil {
		t.Skipf("cannot create a disk without requests: %v", err)
	}
	number := strings.TrimSpace(string(n))
	z := &loop{name: "zram" + number, path: "/dev/zram" + number}
	t.Cleanup(func() { os.WriteFile("/sys/class/zram-control/hot_remove", []byte(number), 0) })
	if err := os.WriteFile(z.sys("disksize"), []byte(fmt.Sprint(loopSize)), 0); err != nil {
		t.Fatal(err)
	}
	if z.dev, err = os.OpenFile(z.path, os.O_RDWR|unix.O_DIRECT, 0); err != nil {
		t.Skipf("no device nodes are created for disks: %v", err)
	}
	t.Cleanup(func() { z.dev.Close() })
	return z
}

// TestBios checks that I/O of a disk without requests is shown only if it is grouped by disk.
func TestBios(t *testing.T) {
	tooltest.OnHooks(t, "bioqueue", "biocomplete")
	z := zram(t)
	left := 0
	load := func() {
		writeBlocks(t, z.dev, 100)
		readBlocks(t, z.dev, 50)
		for range 3 {
			if err := unix.Fsync(int(z.dev.Fd())); err != nil {
				t.Error(err)
			}
		}
	}
	loadAndCount := func() {
		load()
		left += entries(t, "bios")
	}
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-D", "--operations", "--pid", pid()}, loadAndCount)
	for op, n := range map[string]float64{"write": 100, "read": 50} {
		if h := find(t, res, map[string]string{"disk": z.name, "operation": op}); h.Num("count") != n {
			t.Errorf("%v of %s, want %v", h.Num("count"), op, n)
		}
	}
	res = tooltest.JSONUndisturbed(t, Tool, []string{"--stages", "-d", z.name}, loadAndCount)
	if h := find(t, res, map[string]string{"stage": "total"}); h.Num("count") < 150 || len(res.Histograms) != 1 {
		t.Errorf("histograms: %v", keys(res))
	}
	checkCounters(t, res, nil)
	if left > 0 {
		t.Errorf("%d bios remain in the map", left)
	}
	res = tooltest.JSONUndisturbed(t, Tool, []string{"--operations", "--pid", pid()}, load)
	if len(res.Histograms) != 0 {
		t.Errorf("bios count among requests: %v", keys(res))
	}
}

// TestBiosUnended adds bios to the map that the kernel does not have, as if their ends had not been
// observed: they are lost events.
func TestBiosUnended(t *testing.T) {
	tooltest.OnHooks(t, "bioqueue", "biocomplete")
	z := zram(t)
	const n = 3
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-d", z.name}, func() {
		writeBlocks(t, z.dev, 10)
		m := tooltest.OwnMap(t, "bios")
		defer m.Close()
		for i := range n {
			if err := m.Put(uint64(8*i+8), make([]byte, m.ValueSize())); err != nil {
				t.Error(err)
			}
		}
	})
	if h := find(t, res, nil); h.Num("count") != 10 {
		t.Errorf("%v writes, want 10", h.Num("count"))
	}
	counters := res.Summary.Object("counters")
	if lost := res.Summary.Num("lost"); lost != n || counters.Num("unended") != n || counters.Num("unfinished") != 0 {
		t.Errorf("%v lost of %d: %v", lost, n, res.Summary)
	}
}

// TestEntries reuses the requests of a disk many times: the map must not have more entries than the
// disk has requests.
func TestEntries(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLoop(t, 0)
	tooltest.JSON(t, Tool, []string{"-Q", "-d", l.name}, func() {
		readBlocks(t, l.dev, 10*loopDepth)
		if n := entries(t, "ios"); n == 0 || n > loopDepth {
			t.Errorf("%d entries for the disk's %d requests", n, loopDepth)
		}
	})
}

// entries returns the number of entries of the map.
func entries(t testing.TB, name string) int {
	t.Helper()
	m := tooltest.OwnMap(t, name)
	defer m.Close()
	return count(m)
}

func count(m *ebpf.Map) (n int) {
	var key, value []byte
	for it := m.Iterate(); it.Next(&key, &value); n++ {
	}
	return n
}
