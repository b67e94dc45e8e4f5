package biolatency

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/corescope/corescope/internal/tooltest"
)

// Definitions for the device mapper, from linux/dm-ioctl.h: struct dm_ioctl and, for a table,
// struct dm_target_spec with its parameters.
type (
	dmCommand struct {
		version               [3]uint32
		size, start           uint32
		targets               uint32
		open                  int32
		flags, event, padding uint32
		dev                   uint64
		name                  [128]byte
		uuid                  [136]byte
		target                dmTarget
		params                [256]byte
	}
	dmTarget struct {
		start, sectors uint64
		status         int32
		next           uint32
		kind           [16]byte
	}
)

const (
	dmCreate = 0xc138fd03
	dmRemove = 0xc138fd04
	dmResume = 0xc138fd06
	dmLoad   = 0xc138fd09
	// dmSuspended is the flag of dmResume that suspends the disk.
	dmSuspended = 1 << 1
)

// mapperControl returns a function that sends a command for the device mapper disk on the loop device.
func mapperControl(t testing.TB, l *loop) func(req uint, c dmCommand) (dmCommand, error) {
	t.Helper()
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no device mapper: %v", err)
	}
	t.Cleanup(func() { control.Close() })
	return func(req uint, c dmCommand) (dmCommand, error) {
		c.version, c.size, c.start = [3]uint32{4}, uint32(unsafe.Sizeof(c)), uint32(unsafe.Offsetof(c.target))
		copy(c.name[:], "corescope-"+l.name)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), uintptr(req), uintptr(unsafe.Pointer(&c)))
		if errno != 0 {
			return c, errno
		}
		return c, nil
	}
}

// mapper creates a device mapper disk with one target on the loop device.
func mapper(t testing.TB, l *loop, kind, params string) *loop {
	t.Helper()
	tooltest.Root(t)
	do := mapperControl(t, l)
	made, err := do(dmCreate, dmCommand{})
	if err != nil {
		t.Fatalf("create device mapper disk: %v", err)
	}
	t.Cleanup(func() { do(dmRemove, dmCommand{}) })
	table := dmCommand{targets: 1, target: dmTarget{sectors: loopSize / 512}}
	copy(table.target.kind[:], kind)
	copy(table.params[:], params)
	if _, err := do(dmLoad, table); errors.Is(err, unix.EINVAL) && kind != "linear" {
		t.Skipf("device mapper target %s is unavailable", kind)
	} else if err != nil {
		t.Fatalf("load table: %v", err)
	}
	if _, err := do(dmResume, dmCommand{}); err != nil {
		t.Fatal(err)
	}
	return opened(t, fmt.Sprintf("dm-%d", unix.Minor(made.dev)))
}

// opened opens a disk that the test has created, by its kernel name.
func opened(t testing.TB, name string) *loop {
	t.Helper()
	d := &loop{name: name, path: "/dev/" + name}
	var err error
	if d.dev, err = os.OpenFile(d.path, os.O_RDWR|unix.O_DIRECT, 0); err != nil {
		t.Skipf("no device nodes are created for disks: %v", err)
	}
	t.Cleanup(func() { d.dev.Close() })
	return d
}

// TestDeviceMapper checks that the mapped disk and the underlying one each show all I/O.
func TestDeviceMapper(t *testing.T) {
	tooltest.OnHooks(t, "bioqueue", "biocomplete", "complete")
	l := newLoop(t, 0)
	d := mapper(t, l, "linear", l.path+" 0")
	load := func() {
		writeBlocks(t, d.dev, 40)
		readBlocks(t, d.dev, 30)
		for range 5 {
			if err := unix.Fsync(int(d.dev.Fd())); err != nil {
				t.Error(err)
			}
		}
	}
	res := tooltest.JSONUndisturbed(t, Tool, []string{"-D", "--operations"}, load)
	for _, disk := range []string{l.name, d.name} {
		for op, n := range map[string]float64{"write": 40, "read": 30, "flush": 5} {
			if h := find(t, res, map[string]string{"disk": disk, "operation": op}); h.Num("count") != n {
				t.Errorf("%v of %s on %s, want %v", h.Num("count"), op, disk, n)
			}
		}
	}
	res = tooltest.JSONUndisturbed(t, Tool, []string{"-d", d.name}, load)
	if h := find(t, res, nil); h.Num("count") != 75 {
		t.Errorf("%v on the mapped disk, want 75", h.Num("count"))
	}
	res = tooltest.JSONUndisturbed(t, Tool, []string{"--operations", "--pid", pid()}, load)
	if h := find(t, res, map[string]string{"operation": "write"}); h.Num("count") != 40 {
		t.Errorf("%v writes when not grouped by disk, want 40", h.Num("count"))
	}
}

// TestMappedDelay delays writes in the device mapper: this is time of the mapped disk, not of the
// underlying one. The kernel counts the delay in ticks, the first of which has already begun.
func TestMappedDelay(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLoop(t, 0)
	const n, delay, tick = 20, 30 * time.Millisecond, 10 * time.Millisecond
	d := mapper(t, l, "delay", fmt.Sprintf("%s 0 %d", l.path, delay.Milliseconds()))
	res := tooltest.JSON(t, Tool, []string{"-D", "--operations"}, func() { writeBlocks(t, d.dev, n) })
	for disk, late := range map[string]int{d.name: n, l.name: 0} {
		h := find(t, res, map[string]string{"disk": disk, "operation": "write"})
		if h.Num("count") != n || (h.Num("min") >= float64((delay-tick)/time.Microsecond)) != (late > 0) {
			t.Errorf("%s, %d of %d held for %v: %v", disk, late, n, delay, h)
		}
	}
}

// TestSuspended ends the run while writes wait in a suspended disk: they are unfinished, and not lost.
func TestSuspended(t *testing.T) {
	tooltest.AnyAttachType(t)
	l := newLoop(t, 0)
	d := mapper(t, l, "linear", l.path+" 0")
	do := mapperControl(t, l)
	set := func(flags uint32) {
		if _, err := do(dmResume, dmCommand{flags: flags}); err != nil {
			t.Error(err)
		}
	}
	const n = 3
	w := &writers{t: t, disk: d}
	t.Cleanup(w.done.Wait)
	t.Cleanup(func() { set(0) }) // before the disk is closed
	res := tooltest.JSON(t, Tool, []string{"-d", d.name, "--pid", pid()}, func() {
		set(dmSuspended)
		for i := range n {
			w.begin(int64(i * stride))
		}
		await(t, func() error {
			if got := entries(t, "bios"); got != n {
				return fmt.Errorf("%d bios in the map, want %d", got, n)
			}
			return nil
		})
	})
	checkCounters(t, res, map[string]int{"unfinished": n})
	if h := find(t, res, nil); h.Num("count") != 0 {
		t.Errorf("times of I/O that has not ended: %v", h)
	}
}

// chunk is the size of the parts that tooltest.Striped writes to each disk in turn.
const chunk = 64 << 10

// striped creates an md disk that is striped over loop devices.
func striped(t testing.TB, parts ...*loop) *loop {
	t.Helper()
	var paths []string
	for _, l := range parts {
		paths = append(paths, l.path)
	}
	name, disk := tooltest.Striped(t, paths...)
	return &loop{name: name, path: "/dev/" + name, dev: disk}
}

// TestStriped checks bios that md passes on unchanged, on kernels before 5.14 or without
// accounting.
func TestStriped(t *testing.T) {
	tooltest.OnHooks(t, "bioqueue", "biocomplete", "complete")
	for _, on := range []string{"1", "0"} {
		t.Run("iostats "+on, func(t *testing.T) {
			one, two := newLoop(t, 0), newLoop(t, 0)
			d := striped(t, one, two)
			if level, err := os.ReadFile(d.sys("md/level")); err != nil || strings.TrimSpace(string(level)) != "raid0" {
				t.Fatalf("the array is %q: %v", level, err)
			}
			if err := os.WriteFile(d.sys("queue/iostats"), []byte(on), 0); err != nil {
				t.Logf("set accounting: %v", err)
			}
			const n = 2 * chunk / stride // the same number on each
			left := 0
			res := tooltest.JSONUndisturbed(t, Tool, []string{"-D", "--operations"}, func() {
				writeBlocks(t, d.dev, n)
				left = entries(t, "bios")
			})
			if left > 0 {
				t.Errorf("%d bios remain in the map", left)
			}
			for _, disk := range []string{d.name, one.name, two.name} {
				want := map[bool]float64{true: n, false: n / 2}[disk == d.name]
				if h := find(t, res, map[string]string{"disk": disk, "operation": "write"}); h.Num("count") != want {
					t.Errorf("%v writes on %s, want %v", h.Num("count"), disk, want)
				}
			}
		})
	}
}

// readInt returns 0 if the file cannot be read.
func readInt(file string) int {
	b, _ := os.ReadFile(file)
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// TestTimer reads from a disk whose latency is set by a kernel timer.
func TestTimer(t *testing.T) {
	tooltest.OnHooks(t, "issue", "complete")
	const params = "/sys/module/null_blk/parameters"
	irq, delay := readInt(filepath.Join(params, "irqmode")), time.Duration(readInt(filepath.Join(params, "completion_nsec")))
	if irq != 2 || delay < time.Millisecond {
		t.Skip("no null_blk disk with irqmode=2 and completion_nsec of 1 ms or more")
	}
	d := opened(t, "nullb0")
	const n = 100
	var wall time.Duration
	res := tooltest.JSON(t, Tool, []string{"--stages", "-d", d.name}, func() {
		begin := time.Now()
		readBlocks(t, d.dev, n)
		wall = time.Since(begin)
	})
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	device := find(t, res, map[string]string{"stage": "device"})
	if device.Num("count") != n || device.Num("min") < us(delay) || device.Num("sum") > us(wall) {
		t.Errorf("%d reads of %v took %v: %v", n, delay, wall, device)
	}
	if queue := find(t, res, map[string]string{"stage": "queue"}); queue.Num("p50") > us(delay)/2 {
		t.Errorf("device time is included in the queue time: %v", queue)
	}
	checkCounters(t, res, nil)
}
