package system

import (
	"path/filepath"
	"strconv"
	"strings"
)

// StackDepth is how many frames the kernel walks at the most: kernel.perf_event_max_stack, or
// its default where that cannot be read.
func StackDepth(root string) int {
	const usual = 127
	text, err := readFile(filepath.Join(root, "proc/sys/kernel/perf_event_max_stack"), 64)
	if err != nil {
		return usual
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n <= 0 {
		return usual
	}
	return n
}
