package system

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
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
