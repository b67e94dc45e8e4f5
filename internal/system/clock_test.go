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

// The kernel gives the boot time in whole seconds in /proc/stat, by the same two clocks.
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
		t.Errorf("boot at %v by the clocks, at %v by /proc/stat", time.Unix(0, offset), time.Unix(btime, 0))
	}
}

// Two measurements agree within the window of a clock reading unless the clock is stepped meanwhile.
func TestBootOffsetIsTight(t *testing.T) {
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
	t.Errorf("of 5 pairs of measurements none agrees within 10 us: %v ns", spread)
}

// A fake clock takes time to be read, each time less by one up to the tenth, then more.
func TestNarrowest(t *testing.T) {
	const offset = 5e9
	at, reads := int64(1000), int64(0)
	get := func(clock int32, ts *unix.Timespec) error {
		try := reads / 3
		reads++
		at += 100 + 10*max(10-try, try-10)
		*ts = unix.NsecToTimespec(at)
		if clock == unix.CLOCK_REALTIME {
			*ts = unix.NsecToTimespec(at + offset + 1000*max(10-try, try-10)) // wrong but in the tenth
		}
		return nil
	}
	if got, err := narrowest(get); got != offset || err != nil {
		t.Errorf("got %d, %v; want %d", got, err, int64(offset))
	}
	if reads != 16*3 {
		t.Errorf("%d reads of clocks, want 16 times 3", reads)
	}
	boom := errors.New("boom")
	if _, err := narrowest(func(int32, *unix.Timespec) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("got %v, want boom", err)
	}
}
