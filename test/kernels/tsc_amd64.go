package main

import (
	"fmt"
	"time"
)

// timeStamp reads the CPU's time stamp counter (RDTSC).
func timeStamp() uint64

// tscParam returns a kernel parameter with the frequency of the host's time stamp counter, which
// emulated machines read unmodified. A kernel that calibrates it on a busy host can be wrong by a
// factor of five, and so can its clock until it shuts down.
func tscParam() string {
	const long, short = 100 * time.Millisecond, 10 * time.Microsecond
	from, first := stamped(short)
	time.Sleep(long)
	to, last := stamped(short)
	return fmt.Sprintf("tsc_early_khz=%d ", (last-first)*uint64(time.Millisecond)/uint64(to.Sub(from)))
}

// stamped returns a time and a time stamp that were read within the given duration.
func stamped(within time.Duration) (time.Time, uint64) {
	for {
		before := time.Now()
		stamp := timeStamp()
		if time.Since(before) <= within {
			return before, stamp
		}
	}
}
