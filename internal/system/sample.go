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

// CPUTimeUnit is the unit of [CPUTimes], USER_HZ.
const CPUTimeUnit = time.Second / 100

// CPUTime is how long a CPU has been idle, with and without pending I/O, and how long the hypervisor ran
// something else on it.
type CPUTime struct{ Idle, Steal time.Duration }

// CPUTimes returns the times of each online CPU.
func CPUTimes(root string) (map[int]CPUTime, error) {
	const limit = 4 << 20 // 8,192 CPUs and many interrupts
	text, err := readFile(filepath.Join(root, "proc/stat"), limit)
	if err != nil {
		return nil, fmt.Errorf("read times of CPUs: %w", err)
	}
	times := map[int]CPUTime{}
	for line := range strings.Lines(string(text)) {
		var cpu int
		var user, nice, system, idle, wait, irq, softirq, steal int64
		if n, _ := fmt.Sscanf(line, "cpu%d %d %d %d %d %d %d %d %d", &cpu, &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal); n == 9 {
			times[cpu] = CPUTime{time.Duration(idle+wait) * CPUTimeUnit, time.Duration(steal) * CPUTimeUnit}
		}
	}
	return times, nil
}
