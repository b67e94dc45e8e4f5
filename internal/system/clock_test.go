package system

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBootOffset compares with btime in /proc/stat: the difference of the same clocks in seconds.
func TestBootOffset(t *testing.T) {
	offset, err := BootOffset()
	check(t, err)
	stat, err := os.ReadFile("/proc/stat")
	check(t, err)
	_, rest, ok := strings.Cut(string(stat), "btime ")
	if !ok {
		t.Fatal("no btime in /proc/stat")
	}
	btime, err := strconv.ParseInt(rest[:strings.IndexByte(rest, '\n')], 10, 64)
	check(t, err)
	if d := time.Duration(offset - btime*1e9); d < -time.Second || d > 2*time.Second {
		t.Errorf("boot at %v from the clocks, at %v from /proc/stat", time.Unix(0, offset), time.Unix(btime, 0))
	}
}

// TestBootOffsetPrecision expects two measurements to agree within the time of a clock reading. One
// of several pairs is sufficient, because the clock can be stepped between two measurements.
func TestBootOffsetPrecision(t *testing.T) {
	var spread []int64
	for range 5 {
		a, err := BootOffset()
		check(t, err)
		b, err := BootOffset()
		check(t, err)
		spread = append(spread, max(a-b, b-a))
	}
	t.Logf("differences in ns: %v", spread)
	for _, d := range spread {
		if d < 10_000 {
			return
		}
	}
	t.Errorf("none of 5 pairs of measurements agrees within 10 us: %v ns", spread)
}

// TestNarrowest uses a simulated clock whose reading is fastest, and correct, in attempt 10 only.
func TestNarrowest(t *testing.T) {
	const offset = 5e9
	now, reads := int64(1000), int64(0)
	get := func(clock int32, ts *unix.Timespec) error {
		attempt := reads / 3
		reads++
		now += 100 + 10*max(10-attempt, attempt-10)
		*ts = unix.NsecToTimespec(now)
		if clock == unix.CLOCK_REALTIME {
			*ts = unix.NsecToTimespec(now + offset + 1000*max(10-attempt, attempt-10))
		}
		return nil
	}
	if got, err := narrowest(get); got != offset || err != nil {
		t.Errorf("narrowest() = %d, %v; want %d", got, err, int64(offset))
	}
	if reads != 16*3 {
		t.Errorf("%d reads of clocks, want 16 times 3", reads)
	}
	failure := errors.New("simulated")
	if _, err := narrowest(func(int32, *unix.Timespec) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("narrowest() with a failing clock: %v, want %v", err, failure)
	}
}
