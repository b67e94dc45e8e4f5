package system

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// BootOffset returns CLOCK_REALTIME minus CLOCK_BOOTTIME in ns. Add it to a value of
// bpf_ktime_get_boot_ns to get ns since the Unix epoch.
//
// The clocks cannot be read at the same moment, so CLOCK_REALTIME is read between two readings of
// CLOCK_BOOTTIME. Of several attempts the one with the smallest distance between these counts. The
// error is at most half that distance: well below 1 us, unless the machine is overloaded. The
// offset changes when the wall clock is set or slewed.
func BootOffset() (int64, error) { return narrowest(unix.ClockGettime) }

type gettime func(clock int32, result *unix.Timespec) error

func narrowest(get gettime) (int64, error) {
	const tries = 16
	var best, width int64
	for i := range tries {
		offset, w, err := measure(get)
		if err != nil {
			return 0, err
		}
		if i == 0 || w < width {
			best, width = offset, w
		}
	}
	return best, nil
}

// measure returns the offset, and the time between the two readings of CLOCK_BOOTTIME.
func measure(get gettime) (offset, width int64, err error) {
	var before, wall, after unix.Timespec
	for _, read := range []struct {
		clock  int32
		result *unix.Timespec
	}{{unix.CLOCK_BOOTTIME, &before}, {unix.CLOCK_REALTIME, &wall}, {unix.CLOCK_BOOTTIME, &after}} {
		if err := get(read.clock, read.result); err != nil {
			return 0, 0, fmt.Errorf("read clock %d: %w", read.clock, err)
		}
	}
	width = after.Nano() - before.Nano()
	return wall.Nano() - before.Nano() - width/2, width, nil
}

// BootNow returns the current CLOCK_BOOTTIME in ns, the clock of bpf_ktime_get_boot_ns.
func BootNow() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("read boot clock: %w", err)
	}
	return uint64(now.Nano()), nil
}
