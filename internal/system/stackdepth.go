package system

import (
	"path/filepath"
	"strconv"
	"strings"
)

// StackDepth returns the maximum number of frames that the kernel walks:
// kernel.perf_event_max_stack, or its default if it cannot be read.
func StackDepth(root string) int {
	const kernelDefault = 127
	text, err := readFile(filepath.Join(root, "proc/sys/kernel/perf_event_max_stack"), 64)
	if err != nil {
		return kernelDefault
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n <= 0 {
		return kernelDefault
	}
	return n
}
