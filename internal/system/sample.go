package system

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MaxSampleRate returns the maximum sampling frequency of a perf event, in samples per second and
// CPU (kernel.perf_event_max_sample_rate), or math.MaxUint64 if it cannot be read.
func MaxSampleRate(root string) uint64 {
	text, err := readFile(filepath.Join(root, "proc/sys/kernel/perf_event_max_sample_rate"), 64)
	if err != nil {
		return math.MaxUint64
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return n
}

// IdleUnit is the unit of [IdleTimes], USER_HZ.
const IdleUnit = time.Second / 100

// IdleTimes returns how long each online CPU has been idle, with and without pending I/O.
func IdleTimes(root string) (map[int]time.Duration, error) {
	const limit = 4 << 20 // 8,192 CPUs and many interrupts
	text, err := readFile(filepath.Join(root, "proc/stat"), limit)
	if err != nil {
		return nil, fmt.Errorf("read idle time of CPUs: %w", err)
	}
	times := map[int]time.Duration{}
	for line := range strings.Lines(string(text)) {
		var cpu int
		var user, nice, system, idle, wait int64
		if n, _ := fmt.Sscanf(line, "cpu%d %d %d %d %d %d", &cpu, &user, &nice, &system, &idle, &wait); n == 6 {
			times[cpu] = time.Duration(idle+wait) * IdleUnit
		}
	}
	return times, nil
}
