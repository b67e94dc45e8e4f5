package main

import (
	"fmt"
	"time"
)

// timeStamp is the CPU's time stamp counter.
func timeStamp() uint64

// tscParam tells a kernel how fast the host counts its time stamps, which emulated machines
// read as they are. One that measures it by itself on a busy host can be off by five
// times, and its clock with it for as long as it runs.
func tscParam() string {
	const long, short = 100 * time.Millisecond, 10 * time.Microsecond
	from, first := stamped(short)
	time.Sleep(long)
	to, last := stamped(short)
	return fmt.Sprintf("tsc_early_khz=%d ", (last-first)*uint64(time.Millisecond)/uint64(to.Sub(from)))
}

// stamped returns a time and a time stamp that are no further apart than that.
func stamped(apart time.Duration) (time.Time, uint64) {
	for {
		before := time.Now()
		stamp := timeStamp()
		if time.Since(before) <= apart {
			return before, stamp
		}
	}
}
