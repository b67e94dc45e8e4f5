package system

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"
)

// MaxSampleRate is how many samples a second a perf event may ask for on one CPU
// (kernel.perf_event_max_sample_rate). Without a limit that can be read it is any number.
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
